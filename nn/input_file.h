// InputFile: a regular file, read at offsets. Its size is that at opening; a file that shrinks later is an error.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ringgrad::nn {

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);  // throws IoError: missing, unreadable, no regular file
  ~InputFile();
  InputFile(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Exactly `bytes` bytes from `offset`. Throws DataError where the file has become shorter, IoError.
  void read_at(uint64_t offset, void* data, size_t bytes) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

}  // namespace ringgrad::nn
