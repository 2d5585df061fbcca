// Counts how well the accesses of each source line use the memory, and what else a warp executes. A
// device's profiler measures these as sectors per request and bank conflicts
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
  // Counts only the first `blocks` blocks of each launch.
  explicit Profile(int64_t blocks) : blocks_(blocks) {}

  void begin_launch(const Grid& grid);
  void begin_block(int64_t index) { active_ = index < blocks_; }
  void access(const Access& access, Memory memory);
  void count(const char* kind, int64_t amount);
  void end_block();

  KernelCounts counts() const;

 private:
  // The accesses that the lanes of a warp make with one instruction. The k-th executions of all
  // lanes belong together.
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
    std::map<int, int> executions;                       // per thread of this block
    std::map<std::pair<int, int>, Request> in_progress;  // per warp and execution
  };

  static void count_request(AccessCount& count, const Request& request);

  const int64_t blocks_;
  bool active_ = false;
  int64_t launches_ = 0;
  int64_t all_blocks_ = 0;
  int64_t threads_ = 0;
  std::map<std::pair<const void*, bool>, Site> sites_;  // per place and direction
  std::map<std::string, int64_t> instructions_;
};

// Returns a line for each of the accesses: the number of requests; for global memory the 32-byte
// sectors per request and the fraction of them that was requested; for shared memory the passes per
// request, and the least possible number.
std::string table_of(const KernelCounts& counts);

}  // namespace ringgrad::emulator
