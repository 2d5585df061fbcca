#include "ringgrad/cuda_kernels/conv2d_tensor_cores.cuh"

namespace ringgrad::cuda {

RINGGRAD_CONV_ON_TENSOR_CORES(, __half)
RINGGRAD_CONV_ON_TENSOR_CORES(, __nv_bfloat16)

}  // namespace ringgrad::cuda
