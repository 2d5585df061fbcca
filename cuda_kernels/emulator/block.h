// Runs one thread block at a time on one operating system thread. It decides which CUDA thread runs
// when, and what it waits for.
//
// CUDA threads are iterations of a plain loop until one of them has to wait. Then its stack is
// parked as it is, and a fiber from a pool continues the loop. So a kernel without barriers costs 4
// ns per thread and no switch, and it need not be known in advance which kernels have barriers.
//
// Waiting follows the hardware since Volta. __syncthreads opens when all threads that have not
// exited have arrived. A warp collective concerns only the lanes in its mask.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/config.h"
#include "ringgrad/cuda_kernels/emulator/fiber.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"
#include "ringgrad/cuda_kernels/emulator/shared_memory.h"

namespace ringgrad::emulator {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;

// A lane's input to a warp collective and its result: a value of up to 8 bytes, or a pointer to
// more.
struct Lane {
  uint64_t in;
  uint64_t out;
  int source;  // the lane whose value a shuffle reads
};

// Computes the results of all lanes in `arrived`. Called once, when the last of them has arrived.
// Returns what is wrong, or an empty string.
using Combine = std::string (*)(Lane* lanes, uint32_t arrived);

class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;

  // Returns the calling thread's block, which its first launch creates.
  static Block& mine();

  // Runs block number `index` of the grid. Throws CudaError that names the source line if its
  // threads cannot all continue (divergent or missing barriers) or misuse an intrinsic. The block
  // is usable again afterwards.
  void run(const Grid& grid, int64_t index);

  // -- for the intrinsics, which a running CUDA thread calls
  // ------------------------------------------
  void sync_threads(Site site);
  // `kind` names the intrinsic in reports. Lanes that meet must have called the same one.
  Lane collective(uint32_t mask, Lane mine, Combine combine, const char* kind, Site site);
  void fence();
  void* dynamic_shared() const { return shared_.data(); }
  AsyncCopies& async_copies() { return threads_[current_].copies; }
  int thread() const { return current_; }  // linear index in the block
  int lane() const { return current_ % kWarpSize; }
  bool on_fiber_stack(const void* address) const { return running_->contains(address); }
  // Throws the CudaError that ends the launch.
  [[noreturn]] void fail(Site site, const std::string& problem);

 private:
  struct Thread {
    uint3 index;
    Fiber* fiber;  // the stack on which it was started
    Site waits_at;
    AsyncCopies copies;
  };
  struct Rendezvous {
    uint32_t mask;
    uint32_t arrived;
    Combine combine;
    const char* kind;
  };
  // Sets of lanes, one bit each. A lane is ready, running, at the barrier or in a rendezvous, or it
  // has exited.
  struct Warp {
    uint32_t lanes;
    uint32_t started;
    uint32_t ready;
    uint32_t at_barrier;
    uint32_t exited;
    // The rendezvous at which lanes wait.
    uint32_t arrived_groups;
    std::array<Lane, kWarpSize> values;
    // Indexed by the lowest lane of the mask; disjoint groups work independently.
    std::array<Rendezvous, kWarpSize> rendezvous;
  };

  void begin(const Grid& grid, int64_t index);
  void end();
  void set_shape(dim3 block);

  // -- scheduling (block.cpp) ---
  int choose(uint32_t set);  // returns a set bit; the schedule chooses it
  int pick();                // takes a ready thread, or returns kNone
  bool started(int thread) const {
    return warps_[thread / kWarpSize].started >> (thread % kWarpSize) & 1;
  }
  void make_ready(int warp, uint32_t lanes);
  void make_current(int thread);
  // Runs `thread` from its beginning, then others. Returns the next one that has its own stack.
  int host(int thread);
  // Parks the current thread until it is made ready and picked.
  void suspend();
  void continue_with(int thread);
  void switch_stack(Fiber& to);
  void fiber_main();
  void exit_current();

  // -- waiting (rendezvous.cpp) ---
  void open_barrier_if_complete();
  bool complete(int warp, Rendezvous& meeting);
  void expect_all_exited();  // called if no thread can run: throws unless all have exited

  void recover();

  static constexpr int kNone = -1;

  const Grid* grid_ = nullptr;
  std::vector<Thread> threads_;
  std::array<Warp, kMaxThreads / kWarpSize> warps_;
  uint32_t ready_warps_ = 0;
  int warp_ = 0;  // preferred: the warp that ran last
  int current_ = 0;
  int waiting_at_barrier_ = 0;
  int exited_ = 0;
  Site barrier_site_;
  std::exception_ptr error_;

  Fiber root_;
  Fiber* running_ = &root_;
  int handed_over_ = kNone;  // the first thread of a fiber taken from the pool
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  SharedMemory shared_;
  Schedule schedule_ = Schedule::Forward;
  std::minstd_rand random_;
};

}  // namespace ringgrad::emulator
