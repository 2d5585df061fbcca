// Checks every access of a kernel. It finds accesses to global memory outside every allocation, or
// of another device. It also finds races: two unordered accesses of one byte by two threads, at
// least one of them a write and not both atomic.
//
// Accesses are ordered by the program order of a thread and by barriers of every kind (order.h).
// Two clusters of a launch are ordered by a pair of fences. One writes, waits at a barrier, passes
// __threadfence and then calls an atomic function. The other sees that through an atomic function,
// passes __threadfence and reads. (On a device compute-sanitizer's memcheck and racecheck do this,
// the latter for shared memory only.)
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
#include "ringgrad/cuda_kernels/emulator/check/order.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"

namespace ringgrad::emulator {

// One access, reduced to what races depend on.
struct Trace {
  const void* pc = nullptr;  // nullptr: none yet. With a line: the name of the file.
  int line;
  int64_t cluster;
  // the thread, or the copies of an mbarrier, and its clock
  int thread;
  uint32_t clock;
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
  // Returns the word that contains `address`, with the traces of the last launch that touched it.
  Word& word(uintptr_t address) {
    const uintptr_t page = address / kPageBytes;
    if (page != last_page_) {
      auto& words = pages_[page];
      if (!words) words = std::make_unique<Page>();
      last_page_ = page;
      last_ = words.get();
    }
    return (*last_)[address % kPageBytes / 4];
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
  void begin_launch(const Grid& grid, int device);
  // Throws CudaError that lists the problems found since begin_launch.
  void end_launch();
  void begin_cluster(int64_t index, int threads);
  Order& order() { return order_; }
  void fence();
  void wait_for_previous_launch();
  void access(const Access& access, Memory memory);

 private:
  // The steps of a block: a fence before an atomic function, such a function, a fence after it.
  struct Fences {
    std::shared_ptr<const Order::Snapshot> before;
    bool told = false;
    bool acquired = false;
  };
  static int thread_of(const Access& access);
  void check_bounds(const Access& access);
  void check_shared(const Access& access);
  void check_races(const Access& access, Memory memory);
  void check_previous_launch(const Access& access, const Word& word);
  bool ordered(const Trace& earlier, int thread, Memory memory) const;
  void report(const Access& access, const std::string& problem, const Trace* other);

  Shadow shadow_;
  Order order_;
  const Grid* grid_ = nullptr;
  int device_ = 0;
  uint32_t launch_ = 0;
  size_t static_bytes_ = 0;  // of shared memory, as far as this launch has touched it
  int64_t cluster_ = 0;
  // For this launch: what the threads of each cluster knew at the fences before atomic functions.
  std::unordered_map<int64_t, std::vector<std::shared_ptr<const Order::Snapshot>>> released_;
  std::vector<Fences> fences_;  // by block of the cluster
  std::vector<bool> waited_;    // by thread: for the launch before
  // the last accessed allocation
  uintptr_t known_begin_ = 0;
  uintptr_t known_end_ = 0;

  int found_ = 0;
  std::string reports_;
  std::set<std::pair<const void*, const void*>> reported_;  // places in the program
};

}  // namespace ringgrad::emulator
