// The dynamic shared memory of the block that runs: as many bytes as the launch asked for, and not one more.
#pragma once

#include <cstddef>
#include <memory>

namespace ringgrad::emulator {

inline constexpr size_t kMaxSharedBytes = 227 * 1024;  // per block on sm_90

class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  // Starts a block with `bytes` of undefined contents: every byte 0xFF, which is NaN in every floating type. Under
  // AddressSanitizer what lies beyond is a red zone.
  void begin_block(size_t bytes);
  void* data() const { return data_; }

 private:
  static constexpr size_t kAlignment = 1024;  // what the largest TMA swizzle needs; CUDA promises 16
  static constexpr size_t kRedZone = 4096;
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace ringgrad::emulator
