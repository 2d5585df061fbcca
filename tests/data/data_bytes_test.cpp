// The parts that touch the disk: hashing, writing atomically, and unpacking archives.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "ringgrad/core/base/file.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/datasets/download.h"
#include "ringgrad/data/formats/byte_reader.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::data_bytes_test {

namespace {

Bytes bytes_of(const std::string& text) { return Bytes(text.begin(), text.end()); }

// A POSIX ustar archive of one member per call, spelled out field by field.
void add_member(Bytes& tar, const std::string& name, const Bytes& content, char type = '0') {
  std::string header(512, '\0');
  auto put = [&](size_t at, const std::string& text) { header.replace(at, text.size(), text); };
  char size[13];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  put(0, name);
  put(100, "0000644");
  put(124, size);
  put(148, "        ");
  put(156, std::string(1, type));
  put(257, std::string("ustar\00000", 8));
  unsigned sum = 0;
  for (unsigned char c : header) sum += c;
  char checksum[8];
  std::snprintf(checksum, sizeof checksum, "%06o", sum);
  put(148, checksum);
  header[154] = '\0';
  tar.insert(tar.end(), header.begin(), header.end());
  tar.insert(tar.end(), content.begin(), content.end());
  tar.resize((tar.size() + 511) / 512 * 512);
}

Bytes finished(Bytes tar) {
  tar.resize(tar.size() + 1024);
  return tar;
}

}  // namespace

TEST_CASE("sha256: the examples of FIPS 180-4", "[quick]") {
  REQUIRE(sha256_hex(Bytes()) ==
          "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  REQUIRE(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  TempFolder folder;
  write_bytes(folder / "million", Bytes(1000000, 'a'));
  REQUIRE(sha256_file(folder / "million") ==
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // A file that happens to be a .gz is hashed as it lies there.
  write_bytes(folder / "packed", gzip(bytes_of("abc")));
  REQUIRE(sha256_file(folder / "packed") == sha256_hex(read_bytes(folder / "packed")));
  REQUIRE_THROWS_AS(sha256_file(folder / "none"), IoError);
}

TEST_CASE("atomic_file: the file is the old one or the new one, and no part stays", "[quick]") {
  TempFolder folder;
  const std::filesystem::path file = folder / "x";
  write_bytes(file, bytes_of("old"));
  {
    AtomicFile out(file);
    out.write(bytes_of("ne"));
    REQUIRE(read_bytes(file) == bytes_of("old"));
  }  // given up
  REQUIRE(read_bytes(file) == bytes_of("old"));
  REQUIRE(folder.names().size() == 1);
  {
    AtomicFile out(file);
    AtomicFile other(file);  // two writers at once do not meet
    out.write(bytes_of("new"));
    other.write(bytes_of("other"));
    out.commit();
    REQUIRE(read_bytes(file) == bytes_of("new"));
    other.commit();
  }
  REQUIRE(read_bytes(file) == bytes_of("other"));
  REQUIRE(folder.names().size() == 1);
  REQUIRE(contains(error_of<IoError>([&] { AtomicFile(folder / "no/such/folder/x"); }),
                   "No such file"));
}

TEST_CASE("atomic_file: a process that is killed leaves nothing", "[quick]") {
  TempFolder folder;
  const int probe = open(folder.path().c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
  if (probe < 0) {
    WARN("this file system has no nameless files: skipped");
    return;
  }
  close(probe);
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile out(folder / "x");
    out.write(bytes_of("half of it"));
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  REQUIRE(folder.names().empty());
}

TEST_CASE(
    "atomic_file: parts of processes that were killed are removed, those of the living are not",
    "[quick]") {
  TempFolder folder;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  const std::string living = AtomicFile(folder / "x").part().filename();  // x.HOST.PID.N.part
  std::string dead = living;
  dead.replace(dead.find(str(".", getpid(), ".")), str(".", getpid()).size(), str(".", child));
  const std::string elsewhere = str("x.another-host.", child, ".0.part");
  const std::string other = str("y", dead.substr(1));
  for (const std::string& name : {living, dead, elsewhere, other})
    write_bytes(folder / name, bytes_of("stale"));
  AtomicFile out(folder / "x");
  REQUIRE_FALSE(std::filesystem::exists(folder / dead));
  for (const std::string& name : {living, elsewhere, other})
    REQUIRE(std::filesystem::exists(folder / name));
}

TEST_CASE("atomic_file: a disk that is full leaves the old file and no part", "[quick]") {
  TempFolder folder;
  write_bytes(folder / "x", bytes_of("old"));
  // The system's limit on the size of files stands in for the disk: write() fails in the same way.
  rlimit before{};
  rlimit small{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  small = before;
  small.rlim_cur = 100000;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const std::string error = error_of<IoError>([&] {
    AtomicFile out(folder / "x");
    for (int i = 0; i < 100; ++i) out.write(Bytes(4096));
    out.commit();
  });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  REQUIRE(contains(error,
                   (folder / "x").string() + " cannot be written at byte 100000: File too large"));
  REQUIRE(read_bytes(folder / "x") == bytes_of("old"));
  REQUIRE(folder.names().size() == 1);
}

TEST_CASE("byte_reader: bytes arrive in any portions, packed or not", "[quick]") {
  TempFolder folder;
  Bytes all(300000);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint8_t>(i * i >> 7);
  write_bytes(folder / "plain", all);
  write_bytes(folder / "packed", gzip(all));
  for (const char* name : {"plain", "packed"}) {
    ByteReader reader(folder / name);
    REQUIRE(reader.packed() == (name == std::string("packed")));
    Bytes got;
    Bytes portion;
    for (size_t size = 1;; size = size * 3 % 70001) {
      portion.resize(size);
      const size_t count = reader.read(portion);
      got.insert(got.end(), portion.begin(), portion.begin() + static_cast<std::ptrdiff_t>(count));
      REQUIRE(reader.position() == got.size());
      if (count < size) break;
    }
    REQUIRE(got == all);
    REQUIRE_NOTHROW(reader.expect_end());
  }
}

TEST_CASE("tar: the wanted files come out, whatever else is in the archive", "[quick]") {
  TempFolder folder;
  Bytes long_content(70000, 'z');
  Bytes tar;
  add_member(tar, "data/", {}, '5');
  add_member(tar, "data/unwanted", Bytes(3000, 'u'));
  add_member(tar, "data/a", bytes_of("alpha"));
  add_member(tar, "../../escape", bytes_of("no"));
  add_member(tar, "data/b", long_content);
  const WantedMembers wanted{{"data/a", 5}, {"data/b", 70000}};
  std::filesystem::create_directory(folder / "out");
  const bool packed = GENERATE(false, true);
  write_bytes(folder / "t", packed ? gzip(finished(tar)) : finished(tar));
  extract_tar(folder / "t", folder / "out", wanted);
  REQUIRE(read_bytes(folder / "out/a") == bytes_of("alpha"));
  REQUIRE(read_bytes(folder / "out/b") == long_content);
  REQUIRE(std::distance(std::filesystem::directory_iterator(folder / "out"), {}) == 2);
}

TEST_CASE("tar: a damaged, cut off or different archive leaves nothing behind", "[quick]") {
  TempFolder folder;
  std::filesystem::create_directory(folder / "out");
  Bytes tar;
  add_member(tar, "data/a", bytes_of("alpha"));
  add_member(tar, "data/b", Bytes(1000, 'b'));
  const Bytes whole = finished(tar);
  auto error = [&](const Bytes& bytes, const WantedMembers& wanted) {
    write_bytes(folder / "t", bytes);
    const std::string text =
        error_of<DataError>([&] { extract_tar(folder / "t", folder / "out", wanted); });
    REQUIRE(std::filesystem::is_empty(folder / "out"));
    return text;
  };
  const WantedMembers both{{"data/a", 5}, {"data/b", 1000}};
  for (size_t length = 0; length < 1024 + 512 + 1000; length += 101)
    REQUIRE(contains(
        error(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)), both),
        (folder / "t").string()));
  for (size_t at = 0; at < 512; at += 7) {
    Bytes damaged = whole;
    damaged[at] ^= 0x11;
    REQUIRE(error(damaged, both) != "");
  }
  REQUIRE(contains(error(whole, {{"data/a", 5}, {"data/c", 1}}), "has no file data/c"));
  REQUIRE(contains(error(whole, {{"data/a", 6}}), "data/a has 5 bytes, expected 6"));
  Bytes links;
  // A symbolic link of that name is not the file.
  add_member(links, "data/a", bytes_of("alpha"), '2');
  REQUIRE(contains(error(finished(links), {{"data/a", 5}}), "has no file data/a"));
}

}  // namespace ringgrad::test::data_bytes_test
