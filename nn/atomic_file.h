// AtomicFile: a file that appears under its name whole, or not at all.
//
// It is written as NAME.tmp.PID beside its final place; commit() flushes it to the disk, renames it and flushes the
// directory (Pillai et al. 2014, "All File Systems Are Not Created Equal", on why each of the three is needed). So at
// every instant, also when the machine stops, NAME is the old file or the new one.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/error.h"

namespace ringgrad::nn {

// A file could not be written: no space left, no permission, no such directory. What was there before is intact.
struct WriteError : IoError {
  using IoError::IoError;
};

// Not thread-safe; two of one process for the same path at the same time are a mistake. All members throw WriteError
// naming the file, the byte and the system's reason. A process that may hit RLIMIT_FSIZE must ignore SIGXFSZ.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);  // replaces an existing file only at commit()
  ~AtomicFile();                                           // without commit(): removes what was written
  AtomicFile(const AtomicFile&) = delete;

  void write_at(int64_t offset, const void* data, size_t bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what, int64_t offset = -1) const;

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

// Removes NAME.tmp.PID files in a directory whose process no longer runs: what kill -9 during a save leaves behind.
// Only the owner of the directory's files should call it (rank 0). Errors are ignored: nothing depends on it.
void remove_stale_temporaries(const std::filesystem::path& directory);

}  // namespace ringgrad::nn
