// Files on disk. InputFile reads at offsets. AtomicFile replaces a file whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace ringgrad {

class AtomicFile;

// A regular file to read. Its size is fixed when it is opened: bytes appended later are not seen,
// and a file that shrinks is an error.
class InputFile {
 public:
  // Throws IoError if the file does not exist, cannot be read or is not a regular file (reading a
  // pipe could hang). Throws LimitError if this process may open no more files.
  explicit InputFile(const std::filesystem::path& path);
  // Opens what has been written to `written` so far, before its commit(). The bytes are those that
  // a reader will find after commit(). Throws LimitError.
  explicit InputFile(const AtomicFile& written);
  ~InputFile();
  InputFile(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Reads exactly bytes.size() bytes from `offset`. Throws DataError if the file has become
  // shorter, and IoError. Several threads may read at once.
  void read_at(uint64_t offset, std::span<uint8_t> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  uint64_t size_ = 0;
};

// Writes all bytes. Returns false if that fails; errno then has the reason.
bool write_all(int descriptor, std::string_view bytes);

// Returns all bytes of a regular file. Throws as InputFile does.
std::string text_of(const std::filesystem::path& file);

// Writes the first `bytes` bytes of a file to what is no regular file: a pipe, a terminal, a
// descriptor of this process. Returns false if that fails; errno then has the reason.
using WriteThrough = std::function<bool(int descriptor, uint64_t bytes)>;
// Opens such a file for writing. If that fails, returns an empty function, with the reason in
// errno, and what has failed if it is more than that it "cannot be written". Set before main by
// core/further/special_files.cpp; nullptr in a program without that file.
using OpenSpecialFile = WriteThrough (*)(const std::filesystem::path& place, const char*& what);
inline constinit OpenSpecialFile open_special_file = nullptr;

// Writes a file that appears under its name whole, or not at all.
//
// Links are followed, and the file that they lead to is replaced. It keeps its permissions and, if
// this process may set it, its owner. A pipe, /dev/stdout or anything else that is not a regular
// file is never replaced: the bytes stay in memory until commit() writes all of them there. A name
// of a descriptor of this process, such as /dev/fd/5, stands for that descriptor.
//
// The new file has no name while it is written, so the kernel removes it however the process ends.
// commit() flushes it to disk, names it NAME.HOST.PID.N.part beside its final place, renames it and
// flushes the directory. Pillai et al. 2014, "All File Systems Are Not Created Equal", explain why
// each of these steps is needed. So NAME is the old file or the new one at every instant, even if
// the machine stops. On a file system without nameless files the part has its name from the
// beginning.
//
// Not thread-safe. But several threads, processes and machines may write the same NAME at once,
// each to its own part; the last commit() wins. All members throw IoError that names the file, the
// byte and the system's reason; the old file is then intact. A process that may hit RLIMIT_FSIZE
// must ignore SIGXFSZ.
class AtomicFile {
 public:
  // Opens the file for writing. Also removes the parts of this file that processes of this machine
  // left behind when they were killed. Throws LimitError if this process may open no more files,
  // and IoError if the file is a directory, is protected against writing, or is a pipe that no
  // process reads.
  explicit AtomicFile(const std::filesystem::path& file);
  ~AtomicFile();  // removes what was written unless commit() was called
  AtomicFile(const AtomicFile&) = delete;

  void write(std::span<const uint8_t> bytes);  // appends
  void write(std::string_view text);
  void write_at(uint64_t offset, std::span<const uint8_t> bytes);
  void commit();

  const std::filesystem::path& part() const { return part_; }

 private:
  friend class InputFile;
  void open_target();
  void open_part();
  [[noreturn]] void fail(const char* what, int known = 0) const;  // 0: errno

  std::filesystem::path file_;  // as the caller named it
  std::filesystem::path place_;
  std::filesystem::path part_;
  WriteThrough target_;  // if the target is not a regular file
  int descriptor_ = -1;
  bool nameless_ = false;
  uint64_t end_ = 0;
};

// Writes these bytes to a file, as AtomicFile does.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace ringgrad
