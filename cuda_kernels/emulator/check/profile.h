// How well the accesses of each source line use the memory: what a device's profiler calls sectors per request and bank
// conflicts, counted instead of measured. Looks at the first blocks of each launch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/cuda_kernels/emulator/check/address.h"
#include "ringgrad/cuda_kernels/emulator/grid.h"

namespace ringgrad::emulator {

class Profile {
 public:
  void begin_block(int64_t index);
  void access(const Access& access, Memory memory);
  void end_block();
  // A line per place in the program: requests, and for global memory the 32-byte sectors per request and which part of
  // them was asked for; for shared memory the passes per request (1 is free of bank conflicts).
  std::string table() const;

 private:
  // The accesses that the lanes of a warp make with one instruction: each lane's k-th execution of it belongs together.
  struct Request {
    std::vector<std::pair<uintptr_t, size_t>> accesses;
  };
  struct Site {
    Memory memory;
    bool write;
    int64_t requests = 0, sectors = 0, bytes = 0, passes = 0;
    std::map<int, int> executions;                       // by thread, in this block
    std::map<std::pair<int, int>, Request> in_progress;  // by warp and execution
  };
  void count(Site& site, const Request& request);

  static constexpr int64_t kBlocks = 4;
  bool active_ = false;
  std::map<std::pair<const void*, bool>, Site> sites_;  // by place and direction
};

}  // namespace ringgrad::emulator
