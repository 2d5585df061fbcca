// One thread block at a time on one operating system thread: which CUDA thread runs when, and what
// it may wait for.
//
// CUDA threads are iterations of a plain loop, until one of them has to wait: then its stack is
// parked as it is, and a fiber from a pool goes on with the loop. A kernel without barriers
// therefore costs 4 ns per thread and no switch, and it need not be known beforehand which kernels
// have barriers.
//
// Waiting follows the hardware since Volta: __syncthreads opens when all threads that have not
// exited have arrived, and a warp collective concerns only the lanes in its mask.
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

// What a lane brings to a warp collective and takes away: a value of up to 8 bytes, or a pointer to
// more.
struct Lane {
  uint64_t in;
  uint64_t out;
  int source;  // the lane whose value a shuffle reads
};

// Computes the results of all lanes in `arrived`; called once, when the last of them is there.
// Returns what is wrong, or an empty string.
using Combine = std::string (*)(Lane* lanes, uint32_t arrived);

class Block {
 public:
  Block();
  ~Block();
  Block(const Block&) = delete;

  // The calling thread's block, created at its first launch.
  static Block& mine();

  // Runs block number `index` of the grid. Throws CudaError, naming the source line, when its
  // threads can not all go on (divergent or missing barriers) or misuse an intrinsic. The block is
  // usable again afterwards.
  void run(const Grid& grid, int64_t index);

  // -- for the intrinsics, called by a running CUDA thread ----------------------------------------
  void sync_threads(Site site);
  // `kind` names the intrinsic in reports; lanes that meet must have called the same one.
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
    Fiber* fiber;  // the stack it was started on
    Site waits_at;
    AsyncCopies copies;
  };
  struct Rendezvous {
    uint32_t mask;
    uint32_t arrived;
    Combine combine;
    const char* kind;
  };
  // Sets of lanes, one bit each. A lane is ready, running, at the barrier, in a rendezvous, or has
  // exited.
  struct Warp {
    uint32_t lanes;
    uint32_t started;
    uint32_t ready;
    uint32_t at_barrier;
    uint32_t exited;
    // The rendezvous that have lanes waiting.
    uint32_t arrived_groups;
    std::array<Lane, kWarpSize> values;
    // Each by the lowest lane of its mask: disjoint groups work independently.
    std::array<Rendezvous, kWarpSize> rendezvous;
  };

  void begin(const Grid& grid, int64_t index);
  void end();
  void set_shape(dim3 block);

  // -- scheduling (block.cpp) ---
  int choose(uint32_t set);  // a set bit, by the schedule
  int pick();                // takes a ready thread, or kNone
  bool started(int thread) const {
    return warps_[thread / kWarpSize].started >> (thread % kWarpSize) & 1;
  }
  void make_ready(int warp, uint32_t lanes);
  void make_current(int thread);
  // Runs `thread` from its beginning, then others; returns the next one that has a stack.
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
  void expect_all_exited();  // called when no thread can run: throws unless all have finished

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
  int handed_over_ = kNone;  // the thread that a fiber taken from the pool starts with
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  SharedMemory shared_;
  Schedule schedule_ = Schedule::Forward;
  std::minstd_rand random_;
};

}  // namespace ringgrad::emulator
