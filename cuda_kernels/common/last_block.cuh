// The last block of a launch to come to an end goes on with what all of them have written: no
// second launch is needed to put their parts together. Which one it is depends on chance; what it
// finds does not.
#pragma once

#include <cuda_runtime.h>

namespace ringgrad::cuda {

// Whether this block is the last of `blocks` to come here; then its threads see what all threads of
// those blocks have written before. `counter` is 0 before the launch, and again behind it.
// REQUIRES: all threads of each block call it once.
__device__ __forceinline__ bool is_last_of(unsigned* counter, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    // The block's writes, which the barrier has put before this thread's, are there for all blocks
    // …
    __threadfence();
    // … before this is.
    last = atomicInc(counter, blocks - 1) == blocks - 1;
  }
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace ringgrad::cuda
