// Output is written through links and into pipes and devices. A path that is not a regular file is
// never replaced.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <thread>

#include "ringgrad/core/base/file.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::output_files_test {
namespace fs = std::filesystem;

namespace {

const Bytes kText = {'n', 'e', 'w'};

void write(const fs::path& file, const Bytes& bytes = kText) {
  AtomicFile out(file);
  out.write(bytes);
  out.commit();
}

// Reads everything from a pipe until its last writer closes it.
Bytes read_pipe(int descriptor) {
  Bytes all;
  Bytes some(4096);
  for (ssize_t count; (count = ::read(descriptor, some.data(), some.size())) > 0;)
    all.insert(all.end(), some.begin(), some.begin() + count);
  ::close(descriptor);
  return all;
}

fs::file_type type_of(const fs::path& file) { return fs::symlink_status(file).type(); }

}  // namespace

TEST_CASE("output: a pipe gets all of it, and stays a pipe", "[quick]") {
  const TempFolder folder;
  const fs::path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  require_error<IoError>("pipe is read by nobody", [&] { write(pipe); });
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ::fcntl(reader, F_SETFL, 0);
  // Else a read before the first write is at the end.
  const int writer = ::open(pipe.c_str(), O_WRONLY);
  Bytes received;
  const Bytes large(300'000, 7);  // more than a pipe holds
  std::jthread reads([&] { received = read_pipe(reader); });
  write(pipe, large);
  ::close(writer);
  reads.join();
  CHECK(received == large);
  CHECK(type_of(pipe) == fs::file_type::fifo);
  CHECK(folder.names() == std::vector<std::string>{"pipe"});

  const int gone = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  AtomicFile out(pipe);
  out.write(large);
  ::close(gone);
  require_error<IoError>("pipe cannot be written: Broken pipe", [&] { out.commit(); });
}

TEST_CASE("output: a device is written to, and stays a device", "[quick]") {
  const TempFolder folder;
  const fs::path null = folder / "null";
  const fs::path full = folder / "full";
  const fs::path device = folder / "link";
  if (::mknod(null.c_str(), S_IFCHR | 0666, makedev(1, 3)) != 0 ||
      ::mknod(full.c_str(), S_IFCHR | 0666, makedev(1, 7)) != 0 ||
      ::access(null.c_str(), W_OK) != 0)
    return;  // only root may
  const int opened = ::open(null.c_str(), O_WRONLY | O_CLOEXEC);
  if (opened < 0) return;  // the file system has no devices
  ::close(opened);
  write(null);
  require_error<IoError>("full cannot be written: No space left on device", [&] { write(full); });
  fs::create_symlink("null", device);
  write(device);
  CHECK(type_of(null) == fs::file_type::character);
  CHECK(type_of(full) == fs::file_type::character);
  CHECK(type_of(device) == fs::file_type::symlink);
  CHECK(folder.names().size() == 3);
}

TEST_CASE("output: links are followed, also one to a file that is not there yet", "[quick]") {
  const TempFolder folder;
  fs::create_directory(folder / "there");
  write_bytes(folder / "there/old", Bytes{'o'});
  fs::create_symlink("there/old", folder / "near");
  fs::create_symlink(folder / "near", folder / "far");
  write(folder / "far");
  CHECK(read_bytes(folder / "there/old") == kText);
  CHECK(type_of(folder / "far") == fs::file_type::symlink);
  CHECK(type_of(folder / "near") == fs::file_type::symlink);

  fs::create_symlink("there/fresh", folder / "dangling");
  write(folder / "dangling");
  CHECK(read_bytes(folder / "there/fresh") == kText);
  fs::create_symlink("nowhere/file", folder / "lost");
  require_error<IoError>("lost cannot be created: No such file or directory",
                         [&] { write(folder / "lost"); });
  fs::create_symlink("round", folder / "round");
  require_error<IoError>("round cannot be written: Too many levels of symbolic links",
                         [&] { write(folder / "round"); });
}

TEST_CASE("output: a name of a descriptor is the descriptor", "[quick]") {
  const TempFolder folder;
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  write("/dev/fd/" + std::to_string(ends[1]));
  fs::create_symlink("/proc/self/fd/" + std::to_string(ends[1]), folder / "link");
  write(folder / "link");
  require_error<IoError>("cannot be written: Bad file descriptor",
                         [&] { write("/dev/fd/" + std::to_string(ends[0])); });
  require_error<IoError>("cannot be written: Bad file descriptor",
                         [&] { write("/proc/self/fd/987"); });
  ::close(ends[1]);
  CHECK(read_pipe(ends[0]) == Bytes{'n', 'e', 'w', 'n', 'e', 'w'});

  // A shell redirects standard output to a file in this way. Earlier output stays, and later output
  // comes after it.
  const int file = ::open((folder / "file").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::write(file, "a", 1) == 1);
  write("/proc/self/fd/" + std::to_string(file));
  REQUIRE(::write(file, "z", 1) == 1);
  ::close(file);
  CHECK(read_bytes(folder / "file") == Bytes{'a', 'n', 'e', 'w', 'z'});
}

TEST_CASE(
    "output: folders and protected files are refused before anything is "
    "written, and permissions stay",
    "[quick]") {
  const TempFolder folder;
  fs::create_directory(folder / "folder");
  require_error<IoError>("folder cannot be written: Is a directory",
                         [&] { AtomicFile{folder / "folder"}; });
  require_error<IoError>("folder/ cannot be written: Is a directory",
                         [&] { AtomicFile{folder / "folder/"}; });
  write_bytes(folder / "private", Bytes{'o'});
  REQUIRE(::chmod((folder / "private").c_str(), 0640) == 0);
  write(folder / "private");
  struct stat status {};
  REQUIRE(::stat((folder / "private").c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0640);
  if (::geteuid() != 0) {
    REQUIRE(::chmod((folder / "private").c_str(), 0440) == 0);
    require_error<IoError>("private cannot be replaced: Permission denied",
                           [&] { AtomicFile{folder / "private"}; });
  }
  const std::string longest(255, 'x');
  write(folder / longest);
  CHECK(read_bytes(folder / longest) == kText);
  require_error<IoError>("File name too long", [&] { AtomicFile{folder / (longest + "x")}; });
  for (const char* name : {"a b", "it's \"quoted\"", "two\nlines", "-", "\xff\xfe"}) {
    write(folder / name);
    CHECK(read_bytes(folder / name) == kText);
  }
}

TEST_CASE("output: a checkpoint goes through a pipe as it does into a file", "[quick]") {
  const TempFolder folder;
  const nn::NamedTensors state = {{"x", arange(100'000)}, {"y", ones({3})}};
  nn::save_safetensors(folder / "file", state);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  Bytes received;
  std::thread reads([&] { received = read_pipe(ends[0]); });
  nn::save_safetensors("/dev/fd/" + std::to_string(ends[1]), state);
  ::close(ends[1]);
  reads.join();
  CHECK(received == read_bytes(folder / "file"));
}

}  // namespace ringgrad::test::output_files_test
