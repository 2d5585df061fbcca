// CUDA_CHECK(call) throws unless a call of the CUDA runtime succeeds. For .cu, .cuh and .cpp files of this folder.
#pragma once

#include <cuda_runtime.h>

namespace ringgrad::cuda {

// Throws OutOfMemoryError or CudaError: `operation: call failed: why (cudaErrorName)`.
void check(cudaError_t error, const char* call);

}  // namespace ringgrad::cuda

#define CUDA_CHECK(call) ::ringgrad::cuda::check(call, #call)
