// The last block of a launch to finish continues with what all blocks have written. So no second
// launch is needed to combine their parts. Chance decides which block is the last, but not what it
// reads.
#pragma once

#include <cuda_runtime.h>

namespace ringgrad::cuda {

// Returns true if this block is the last of `blocks` to call it. Its threads then see everything
// that the threads of those blocks wrote before. `counter` is 0 before the launch and after it.
// REQUIRES: all threads of each block call it once.
__device__ __forceinline__ bool is_last_of(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    // The barrier has ordered the block's writes before this thread's. The fence makes them visible
    // to all blocks …
    __threadfence();
    // … before the counter changes.
    last = atomicInc(counter, blocks - 1) == blocks - 1;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace ringgrad::cuda
