// Running sums and the sorted order along the middle dimension of x [O, N, I].
//
// Mapping: a running sum has one thread per column, which goes through N in order; this is slow if
// there are few columns. The order has one thread per element, which counts the elements before it;
// the count is its position. That takes N² comparisons per column, but in parallel and without
// extra memory. A topk of some thousand classes is fast; a sort of millions is not.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/numbers.h"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

// Sums of floats are computed in double; those of integers wrap.
template <class A>
using Total = std::conditional_t<std::is_integral_v<A>, Wrapping<A>, double>;

template <class T>
__global__ void __launch_bounds__(kThreads)
    cumsum_kernel(int64_t O, int64_t N, int64_t I, T* y, const T* x, bool reverse) {
  using A = Compute<T>;
  for (int64_t column = thread_number(); column < O * I; column += thread_count()) {
    const int64_t first = column / I * N * I + column % I;
    Total<A> total = 0;
    for (int64_t n = 0; n < N; ++n) {
      const int64_t at = first + (reverse ? N - 1 - n : n) * I;
      total += static_cast<Total<A>>(widen(x[at]));
      y[at] = narrow<T>(static_cast<A>(total));
    }
  }
}

template <class A>
__device__ __forceinline__ bool less(A a, A b) {
  return a < b || (b != b && a == a);  // NaN is the largest
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    argsort_kernel(int64_t O, int64_t N, int64_t I, int64_t* index, const T* x, bool descending) {
  for (int64_t e = thread_number(); e < O * N * I; e += thread_count()) {
    const int64_t own = e / I % N;
    const T* column = x + (e - own * I);
    const auto value = widen(x[e]);
    int64_t place = 0;
    for (int64_t n = 0; n < N; ++n) {
      const auto other = widen(column[n * I]);
      const bool before = descending ? less(value, other) : less(other, value);
      const bool after = descending ? less(other, value) : less(value, other);
      place += before || (!after && n < own);
    }
    index[e - own * I + place * I] = own;
  }
}

void cumsum_cuda(Stream stream, const Tensor& y, const Tensor& x, bool reverse) {
  ASSERT(x.dim() == 3 && x.is_contiguous() && y.is_contiguous());
  const int64_t O = x.shape()[0];
  const int64_t N = x.shape()[1];
  const int64_t I = x.shape()[2];
  visit_number("cumsum", x.dtype(), [&]<class T>() {
    launch_elements(stream, O * I, cumsum_kernel<Element<T>>, O, N, I, device_data<T>(y),
                    device_data<T>(x), reverse);
  });
}

void argsort_cuda(Stream stream, const Tensor& index, const Tensor& x, bool descending) {
  ASSERT(x.dim() == 3 && x.is_contiguous() && index.is_contiguous());
  const int64_t O = x.shape()[0];
  const int64_t N = x.shape()[1];
  const int64_t I = x.shape()[2];
  visit_dtype("argsort", x.dtype(), [&]<class T>() {
    launch_elements(stream, O * N * I, argsort_kernel<Element<T>>, O, N, I, index.data<int64_t>(),
                    device_data<T>(x), descending);
  });
}

REGISTER_KERNEL(cumsum, CUDA, Native, cumsum_cuda);
REGISTER_KERNEL(argsort, CUDA, Native, argsort_cuda);

}  // namespace
}  // namespace ringgrad::cuda
