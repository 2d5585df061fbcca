// The products of conv2d.cu on tensor cores, compiled in conv2d_tensor_cores.cu: they take as long as all the rest.
#pragma once

#include "ringgrad/cuda_kernels/common/conv_operands.cuh"
#include "ringgrad/cuda_kernels/common/tensor_core_gemm.cuh"

namespace ringgrad::cuda {

#define RINGGRAD_CONV_ON_TENSOR_CORES(storage, T)                                                                 \
  storage template void tensor_core_gemm<true, true, true>(Stream, const GemmShape&, const SeenPixels<T>&,        \
                                                           const Filters<T>&, const OutputStore<T>&);             \
  storage template void tensor_core_gemm<true, false, true>(Stream, const GemmShape&, const SeeingPixels<T>&,     \
                                                            const TransposedFilters<T>&, const InputStore<T>&);   \
  storage template void tensor_core_gemm<false, false, true>(Stream, const GemmShape&, const OutputGradients<T>&, \
                                                             const SeenTaps<T>&, const PartialStore<float>&);

RINGGRAD_CONV_ON_TENSOR_CORES(extern, __half)
RINGGRAD_CONV_ON_TENSOR_CORES(extern, __nv_bfloat16)

}  // namespace ringgrad::cuda
