// Who watches memory accesses of kernels: the checker and the profiler of emulator/check, in builds whose kernels
// report their accesses (RINGGRAD_EMU_CHECK). In other builds nobody does.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringgrad::emulator {

class Block;
struct Grid;

struct Access {
  const void* address;
  size_t bytes;
  bool write, atomic;
  const void* pc;  // where in the program
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void begin_launch(const Grid& grid, int device) = 0;
  virtual void end_launch() = 0;  // throws CudaError with what was found
  virtual void begin_block(const Block& block, int64_t index) = 0;
  virtual void end_block() = 0;
  virtual void block_barrier() = 0;
  virtual void warp_barrier(int warp) = 0;        // __syncwarp of all the warp's lanes
  virtual void access(const Access& access) = 0;  // by the CUDA thread that runs
};

// While there is one, launches run their blocks one after another on the calling thread, and one at a time.
inline constinit Observer* observer = nullptr;

}  // namespace ringgrad::emulator
