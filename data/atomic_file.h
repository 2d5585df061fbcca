// Writing a file that appears complete or not at all: bytes go to FILE.<unique>.part, which becomes FILE at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

namespace ringgrad {

class AtomicFile {
 public:
  // Creates the .part file beside `file`, and removes those that processes killed long ago left behind.
  // Throws IoError.
  explicit AtomicFile(const std::filesystem::path& file);
  // Removes the .part file unless commit() has succeeded.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;

  // Throws IoError, a full disk included.
  void write(std::span<const uint8_t> bytes);
  // Puts the file in place, over an older one. Throws IoError; then the older one is untouched.
  void commit();

  const std::filesystem::path& part() const { return part_; }

 private:
  std::filesystem::path file_, part_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  bool committed_ = false;
};

}  // namespace ringgrad
