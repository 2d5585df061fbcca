// Files on the disk: read at offsets (InputFile), and replaced whole or not at all (AtomicFile).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ringgrad {

class AtomicFile;

// A regular file to read. Its size is that at opening: what is appended is not seen, one that
// shrinks is an error.
class InputFile {
 public:
  // Throws IoError where there is none, it cannot be read, or it is not a regular file (reading a
  // pipe could hang); LimitError where this process may have no more files open.
  explicit InputFile(const std::filesystem::path& path);
  // Opens what has been written to `written` so far, before its commit(). The bytes are those that
  // a reader will find after commit(). Throws LimitError.
  explicit InputFile(const AtomicFile& written);
  ~InputFile();
  InputFile(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Exactly bytes.size() bytes from `offset`. Throws DataError where the file has become shorter,
  // IoError. Several threads may read at once.
  void read_at(uint64_t offset, std::span<uint8_t> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_;
  uint64_t size_ = 0;
};

// Returns all bytes of a regular file. Throws as InputFile does.
std::string text_of(const std::filesystem::path& file);

// Writes a file that appears under its name whole, or not at all.
//
// Links are followed, and the file that they lead to is replaced. It keeps its permissions and, if
// this process may set it, its owner. A pipe, /dev/stdout or anything else that is not a regular
// file is never replaced: the bytes stay in memory until commit() writes all of them there. A name
// of a descriptor of this process, such as /dev/fd/5, is that descriptor.
//
// The new file has no name while it is written, so the kernel removes it however the process ends.
// commit() flushes it to the disk, names it NAME.HOST.PID.N.part beside its final place, renames it
// and flushes the directory (Pillai et al. 2014, "All File Systems Are Not Created Equal", on why
// each of these is needed). So at every instant, also when the machine stops, NAME is the old file
// or the new one. On a file system without nameless files the part has its name from the beginning.
//
// Not thread-safe; but several threads, processes and machines may write the same NAME at once,
// each to a part of its own: the last commit() wins. All members throw IoError naming the file, the
// byte and the system's reason; what was there before is intact. A process that may hit
// RLIMIT_FSIZE must ignore SIGXFSZ.
class AtomicFile {
 public:
  // Opens the file for writing. Also removes the parts of this file that processes of this machine
  // left behind when they were killed. Throws LimitError if this process may open no more files,
  // and IoError if the file is a directory, is protected against writing, or is a pipe that no
  // process reads.
  explicit AtomicFile(const std::filesystem::path& file);
  ~AtomicFile();  // without commit(): removes what was written
  AtomicFile(const AtomicFile&) = delete;

  void write(std::span<const uint8_t> bytes);  // behind the last write
  void write(std::string_view text);
  void write_at(uint64_t offset, std::span<const uint8_t> bytes);
  void commit();

  const std::filesystem::path& part() const { return part_; }

 private:
  friend class InputFile;
  void open_target();
  void open_part();
  void write_to_target();
  [[noreturn]] void fail(const char* what, int known = 0) const;  // 0: errno

  std::filesystem::path file_;  // as it was asked for
  std::filesystem::path place_;
  std::filesystem::path part_;
  int target_ = -1;  // what is no regular file
  int descriptor_ = -1;
  bool nameless_ = false;
  uint64_t end_ = 0;
};

// Writes a file of these bytes, as AtomicFile does.
void write_text(const std::filesystem::path& file, std::string_view text);

}  // namespace ringgrad
