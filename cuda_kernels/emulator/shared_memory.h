// Shared memory: the dynamic shared memory of the running block, and asynchronous copies (cp.async)
// into shared memory of either kind. Contents on which a program may not rely yet read as NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ringgrad::emulator {

inline constexpr size_t kMaxSharedBytes = 227 * 1024;     // per block on sm_90
inline constexpr size_t kSharedBytesUnasked = 48 * 1024;  // more must be requested, see launch()
// Dynamic shared memory begins so many bytes after a multiple of 1024. CUDA guarantees a multiple
// of 16 and no more.
inline constexpr uint32_t kFirstSharedAddress = 16;

// Exactly as many bytes as the launch requested.
class SharedMemory {
 public:
  SharedMemory() = default;
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;

  // Starts a block with `bytes` of undefined contents: every byte is 0xFF, which is NaN in every
  // floating type. Under AddressSanitizer a red zone follows.
  void begin_block(size_t bytes);
  void* data() const { return data_; }
  // The block has exited: its contents are undefined again.
  void end_block(size_t bytes);

 private:
  static constexpr size_t kAlignment = 1024;
  static constexpr size_t kRedZone = 4096;
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::byte* data_ = nullptr;
  size_t capacity_ = 0;
};

// The copies from global to shared memory that one thread starts, groups, and waits for.
//
// The destination is filled with NaN when the copy starts, and with the data only when its group is
// waited for, the latest time that the hardware may take. So a forgotten wait, or a forgotten
// barrier after it, is noticed.
class AsyncCopies {
 public:
  // Copies bytes - zero_fill bytes and sets the rest to zero. Returns what is wrong with the
  // arguments, or "". `pc` is the place in the program, for observers.
  std::string start(void* destination, const void* source, size_t bytes, size_t zero_fill,
                    const void* pc);
  void commit();
  // Completes all groups but the newest `groups`.
  void wait_prior(int groups);

  bool in_flight() const { return !copies_.empty(); }
  void clear();

 private:
  struct Copy {
    void* destination;
    const void* source;
    size_t bytes;
    size_t zero_fill;
    int group;
    const void* pc;
  };
  std::vector<Copy> copies_;  // oldest first
  int group_ = 0;
};

}  // namespace ringgrad::emulator
