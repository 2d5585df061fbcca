// How well the accesses of each source line use the memory, and what else a warp executes: what a
// device's profiler calls sectors per request and bank conflicts, counted instead of measured
// (core/device/access_counter.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/device/access_counter.h"
#include "ringgrad/cuda_kernels/emulator/check/address.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"

namespace ringgrad::emulator {

class Profile {
 public:
  // Looks at the first `blocks` of each launch.
  explicit Profile(int64_t blocks) : blocks_(blocks) {}

  void begin_launch(const Grid& grid);
  void begin_block(int64_t index) { active_ = index < blocks_; }
  void access(const Access& access, Memory memory);
  void instruction(const char* name);
  void end_block();

  KernelCounts counts() const;

 private:
  // The accesses that the lanes of a warp make with one instruction: each lane's k-th execution of
  // it belongs together.
  struct LaneAccess {
    int lane;
    uintptr_t address;
    size_t bytes;
  };
  using Request = std::vector<LaneAccess>;
  struct Site {
    AccessCount count;
    bool atomic = false;
    bool async = false;
    std::map<int, int> executions;                       // by thread, in this block
    std::map<std::pair<int, int>, Request> in_progress;  // by warp and execution
  };

  static void count_request(AccessCount& count, const Request& request);

  const int64_t blocks_;
  bool active_ = false;
  int64_t launches_ = 0;
  int64_t all_blocks_ = 0;
  int64_t threads_ = 0;
  std::map<std::pair<const void*, bool>, Site> sites_;  // by place and direction
  std::map<std::string, int64_t> instructions_;
};

// A line for each of the accesses: requests, and for global memory the 32-byte sectors per request
// and which part of them was asked for; for shared memory the passes per request, and the least
// that would do.
std::string table_of(const KernelCounts& counts);

}  // namespace ringgrad::emulator
