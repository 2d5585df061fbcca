// Kernels for emulator_runtime_test.cpp, which includes this file.
#include "ringgrad/cuda_kernels/launch.h"

namespace {

__global__ void set_kernel(int* x, int n, int value) {
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(n); i += blockDim.x) x[i] = value;
}
__global__ void double_kernel(int* x, int n) {
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(n); i += blockDim.x) x[i] *= 2;
}
__global__ void ask_kernel(int*, int) {}  // for more shared memory
__global__ void trap_kernel() { __trap(); }

}  // namespace
