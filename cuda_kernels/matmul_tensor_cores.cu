// c[b] = a[b] · b[b] + bias in float16 or bfloat16 on tensor cores: the last step of the ladder in
// matmul.cu. common/tensor_core_gemm.cuh explains it; convolutions use it, too.
#include "ringgrad/cuda_kernels/ladders.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/common/tensor_core_gemm.cuh"

namespace ringgrad::cuda {
namespace {

template <class T, bool kVectors>
void run(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  using D = Element<T>;
  using M = MatrixOperand<D>;
  using C = MatrixStore<D>;
  const GemmShape shape{c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]};
  const M left = left_operand<T>(a);
  const M right = right_operand<T>(b);
  const bool a_along_k = left.k_stride == 1;
  const bool b_along_k = right.k_stride == 1;
  const auto gemm = a_along_k   ? b_along_k ? tensor_core_gemm<true, true, kVectors, M, M, C>
                                            : tensor_core_gemm<true, false, kVectors, M, M, C>
                      : b_along_k ? tensor_core_gemm<false, true, kVectors, M, M, C>
                                : tensor_core_gemm<false, false, kVectors, M, M, C>;
  gemm(stream, shape, left, right, {device_data<T>(c), shape.M, shape.N, optional_data<T>(bias)});
}

template <class T>
void run(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const bool vectors = loads_vectors<kChunk>(left_operand<T>(a)) &&
                       loads_vectors<kChunk>(right_operand<T>(b)) &&
                       is_vector_aligned<2>(device_data<T>(c));
  (vectors ? run<T, true> : run<T, false>)(stream, c, a, b, bias);
}

}  // namespace

bool tensor_cores_support(const Tensor& c, const Tensor& a, const Tensor& b) {
  const auto has_unit_stride = [](const Tensor& x) {
    return x.strides()[1] == 1 || x.strides()[2] == 1;
  };
  return (c.dtype() == DType::Float16 || c.dtype() == DType::BFloat16) && has_unit_stride(a) &&
         has_unit_stride(b);
}

void matmul_tensor_cores(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                         const Tensor& bias) {
  ASSERT(tensor_cores_support(c, a, b));
  if (c.dtype() == DType::Float16)
    run<float16>(stream, c, a, b, bias);
  else
    run<bfloat16>(stream, c, a, b, bias);
}

}  // namespace ringgrad::cuda
