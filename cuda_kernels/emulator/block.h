// Runs one thread block at a time, or the blocks of a cluster together, on one operating system
// thread. It decides which CUDA thread runs when, and what it waits for.
//
// CUDA threads are iterations of a plain loop until one of them has to wait. Then its stack is
// parked as it is, and a fiber from a pool continues the loop. So a kernel without barriers costs 4
// ns per thread and no switch, and it need not be known in advance which kernels have barriers.
//
// Waiting follows the hardware since Volta. __syncthreads opens when all threads that have not
// exited have arrived. A warp collective concerns only the lanes in its mask.
//
// What the hardware does beside the threads (async_units.h) happens as late as possible: when all
// threads wait. In the random schedule it also happens at other moments.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/async_units.h"
#include "ringgrad/cuda_kernels/emulator/config.h"
#include "ringgrad/cuda_kernels/emulator/fiber.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"
#include "ringgrad/cuda_kernels/emulator/shared_memory.h"

namespace ringgrad::emulator {

inline constexpr int kMaxThreads = 1024;
inline constexpr int kMaxWarps = kMaxThreads / kWarpSize;
inline constexpr int kMaxCluster = 16;  // blocks; more than 8 must be requested
inline constexpr int kNamedBarriers = 16;

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

  // Runs cluster number `index` of the grid, which mostly has one block. Throws CudaError that
  // names the source line if its threads cannot all continue (divergent or missing barriers) or
  // misuse an intrinsic. The block is usable again afterwards.
  void run(const Grid& grid, int64_t index);

  // -- for the intrinsics, which a running CUDA thread calls
  // ------------------------------------------
  void sync_threads(Site site) { barrier(0, 0, true, site); }
  // Arrives at one of the block's barriers, at which `threads` threads meet: 0 stands for all that
  // have not exited. With `wait` it also waits for the others.
  void barrier(int number, int threads, bool wait, Site site);
  void cluster_barrier(bool arrive, Site site);
  // `kind` names the intrinsic in reports. Lanes that meet must have called the same one.
  Lane collective(uint32_t mask, Lane mine, Combine combine, const char* kind, Site site);
  void fence();
  // Sets the registers of each of the warp's threads. Taking more waits for others to give some.
  void set_registers(int count, bool take, Site site);
  void* dynamic_shared(int member) const;
  void* dynamic_shared() const;  // of the running thread's block
  AsyncCopies& async_copies() { return threads_[current_].copies; }
  AsyncUnits& async() { return async_; }
  // The blocks of the cluster, and the one that the running thread belongs to.
  int members() const { return static_cast<int>(members_.size()); }
  int member() const { return member_; }
  bool exited(int member) const { return members_[member].exited == threads_per_member_; }
  int threads_per_member() const { return threads_per_member_; }
  int thread() const { return current_ - member_ * stride_; }  // linear index in the block
  int thread_of_cluster() const { return current_; }           // with gaps between blocks
  int threads_of_cluster() const { return stride_ * members(); }
  int lane() const { return current_ % kWarpSize; }
  int warp() const { return current_ / kWarpSize; }  // in the cluster
  const Grid& grid() const { return *grid_; }
  bool on_fiber_stack(const void* address) const { return running_->contains(address); }
  uint32_t random() { return static_cast<uint32_t>(random_()); }
  Schedule schedule() const { return schedule_; }
  // Throws the CudaError that ends the launch. `thread` is one of the cluster's.
  [[noreturn]] void fail(Site site, const std::string& problem) const {
    fail(current_, site, problem);
  }
  [[noreturn]] void fail(int thread, Site site, const std::string& problem) const;

  // Parks the running thread until wake() is called for it. `kind` names the wait in reports, which
  // ask async_units about `object`.
  void park(const char* kind, const void* object, Site site);
  void wake(int thread) { make_ready(thread / kWarpSize, 1u << thread % kWarpSize); }
  // Lets other threads and the asynchronous units go on before the running thread does.
  void yield();

 private:
  struct Thread {
    uint3 index;
    Fiber* fiber;  // the stack on which it was started
    Site waits_at;
    const char* waits_in;
    const void* waits_on;
    AsyncCopies copies;
  };
  struct Rendezvous {
    uint32_t mask;
    uint32_t arrived;
    Combine combine;
    const char* kind;
  };
  // One of a block's barriers: the threads that have arrived, by warp, and those of them that wait.
  struct Barrier {
    int threads = 0;
    int arrived = 0;
    std::array<uint32_t, kMaxWarps> lanes{};
    std::array<uint32_t, kMaxWarps> waiting{};
    std::array<Site, kMaxWarps> sites{};
  };
  // A block of the cluster.
  struct Member {
    uint3 index;
    SharedMemory shared;
    int exited = 0;
    std::array<Barrier, kNamedBarriers> barriers;
    // Registers of each thread, by warp, and those that no thread has.
    std::array<int, kMaxWarps> registers{};
    int free_registers = 0;
  };
  // Sets of lanes, one bit each. A lane is ready, running, parked or in a rendezvous, or it has
  // exited.
  struct Warp {
    uint32_t lanes;
    uint32_t started;
    uint32_t ready;
    uint32_t exited;
    // The rendezvous at which lanes wait.
    uint32_t arrived_groups;
    std::array<Lane, kWarpSize> values;
    // Indexed by the lowest lane of the mask; disjoint groups work independently.
    std::array<Rendezvous, kWarpSize> rendezvous;
  };

  void begin(const Grid& grid, int64_t index);
  void begin_member(int member, const Grid& grid, int64_t cluster);
  void end();
  void set_shape(dim3 block, int members);

  // -- scheduling (block.cpp) ---
  int choose(uint32_t set);  // returns a set bit; the schedule chooses it
  int choose_warp();
  int pick();  // takes a ready thread, or returns kNone
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
  void open_if_complete(int member, int number);
  void open_cluster_if_complete();
  void wake_for_registers(int member);
  bool complete(int warp, Rendezvous& meeting);
  void order_lanes(int warp, const Rendezvous& meeting) const;
  void expect_all_exited();  // called if no thread can run: throws unless all have exited

  void recover();

  static constexpr int kNone = -1;

  const Grid* grid_ = nullptr;
  std::vector<Thread> threads_;  // each block's begin at a multiple of stride_
  std::vector<Warp> warps_;
  std::deque<Member> members_;
  int threads_per_member_ = 0;
  int stride_ = kWarpSize;  // threads of a member, rounded up to whole warps
  // Sets of warps that have ready lanes, for each member, and of members that have such warps.
  std::array<uint32_t, kMaxCluster> ready_warps_{};
  uint32_t ready_members_ = 0;
  int warp_ = 0;  // preferred: the warp that ran last
  int current_ = 0;
  int member_ = 0;
  int exited_ = 0;
  // The cluster's barrier: threads that have arrived, those of them that wait, and their phase.
  std::vector<uint8_t> cluster_arrived_;
  std::vector<int> cluster_waiting_;
  int cluster_count_ = 0;
  std::exception_ptr error_;

  Fiber root_;
  Fiber* running_ = &root_;
  int handed_over_ = kNone;  // the first thread of a fiber taken from the pool
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;

  Schedule schedule_ = Schedule::Forward;
  std::minstd_rand random_;
  AsyncUnits async_{*this};
};

}  // namespace ringgrad::emulator
