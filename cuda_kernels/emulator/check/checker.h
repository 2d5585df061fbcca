// Checks every access of a kernel. It finds accesses to global memory outside every allocation, or
// of another device. It also finds races: two unordered accesses of one byte by two threads, at
// least one of them a write and not both atomic.
//
// Accesses are ordered by the program order of a thread, by __syncthreads in a block, and by
// __syncwarp in a warp. Two blocks of a launch are ordered by a pair of fences. One block writes,
// waits at a barrier, passes __threadfence and then calls an atomic function. The other sees that
// through an atomic function, passes __threadfence and reads. (On a device compute-sanitizer's
// memcheck and racecheck do this, the latter for shared memory only.)
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/check/address.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"

namespace ringgrad::emulator {

// One access, reduced to what races depend on.
struct Trace {
  const void* pc = nullptr;  // nullptr: none yet
  int64_t block;
  // the thread, and the number of barriers before
  uint32_t thread;
  uint32_t barrier;
  uint32_t warp_barrier;
  uint8_t bytes;  // the accessed bytes of the word, one bit each
  bool atomic;
};

struct Word {  // 4 bytes
  uint32_t launch = 0;
  Trace write;
  Trace read;
};

// Records for every word of memory its last writer and last reader in the current launch.
class Shadow {
 public:
  // Returns the word that contains `address`; it is empty if this launch has not touched it.
  Word& word(uintptr_t address, uint32_t launch) {
    const uintptr_t page = address / kPageBytes;
    if (page != last_page_) {
      auto& words = pages_[page];
      if (!words) words = std::make_unique<Page>();
      last_page_ = page;
      last_ = words.get();
    }
    Word& word = (*last_)[address % kPageBytes / 4];
    if (word.launch != launch) word = Word{.launch = launch, .write = {}, .read = {}};
    return word;
  }

 private:
  static constexpr uintptr_t kPageBytes = 4096;
  using Page = std::array<Word, kPageBytes / 4>;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_ = ~uintptr_t{0};
  Page* last_ = nullptr;
};

class Checker {
 public:
  void begin_launch(int device);
  // Throws CudaError that lists the problems found since begin_launch.
  void end_launch();
  void begin_block(int64_t index);
  void block_barrier() { ++barrier_; }
  void warp_barrier(int warp) { ++warp_barriers_[warp]; }
  void fence();
  void access(const Access& access, Memory memory);

 private:
  void check_bounds(const Access& access);
  void check_races(const Access& access, Memory memory);
  bool ordered(const Trace& earlier, Memory memory) const;
  void report(const Access& access, const std::string& problem, const Trace* other);

  Shadow shadow_;
  int device_ = 0;
  uint32_t launch_ = 0;
  int64_t block_ = 0;
  uint32_t barrier_ = 0;
  uint32_t warp_barriers_[32] = {};
  // For this launch: how many barriers each block had passed at the fence before its first atomic
  // function.
  std::unordered_map<int64_t, uint32_t> released_;
  // For this block: whether it has passed a fence before an atomic function, such a function, and a
  // fence after it.
  bool fenced_ = false;
  bool told_ = false;
  bool acquired_ = false;
  uint32_t fenced_at_ = 0;
  // the last accessed allocation
  uintptr_t known_begin_ = 0;
  uintptr_t known_end_ = 0;

  int found_ = 0;
  std::string reports_;
  std::set<std::pair<const void*, const void*>> reported_;  // places in the program
};

}  // namespace ringgrad::emulator
