// The convolutions of conv2d.cu on tensor cores.
#include "ringgrad/cuda_kernels/common/conv_operands.cuh"

namespace ringgrad::cuda {

RINGGRAD_CONV_ON_TENSOR_CORES(, __half)
RINGGRAD_CONV_ON_TENSOR_CORES(, __nv_bfloat16)

}  // namespace ringgrad::cuda
