#include "ringgrad/cuda_kernels/runtime/check.h"

#include "ringgrad/core/error.h"

namespace ringgrad::cuda {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) [[likely]]
    return;
  const std::string message =
      str(current_op(), ": ", call, " failed: ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")");
  cudaGetLastError();  // reported here; the next call starts clean, unless the device itself is lost
  if (error == cudaErrorMemoryAllocation) throw OutOfMemoryError(message);
  throw CudaError(message);
}

}  // namespace ringgrad::cuda
