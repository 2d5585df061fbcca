// Weighted sums of rows, and of their pixels.
//
// Mapping: one thread per element of y, in strides of the grid; neighbours read neighbours, or the
// same.
#include "ringgrad/core/kernels/interpolation_kernels.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/cuda_kernels/common/reduce.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"

namespace ringgrad::cuda {
namespace {

template <class T>
struct Places {
  const int64_t* begin;
  const int64_t* index;
  const T* weight;
  explicit Places(const AxisWeights& axis)
      : begin(axis.begin.data<int64_t>()),
        index(axis.index.data<int64_t>()),
        weight(axis.weight.data<T>()) {}

  // A single place's number stays as it is: a sum from 0 on would make 0 of -0.
  template <class Term>
  __device__ __forceinline__ T sum(int64_t i, const Term& term) const {
    const int64_t first = begin[i];
    const int64_t last = begin[i + 1];
    if (first == last) return 0;
    T total = weight[first] * term(index[first]);
    for (int64_t j = first + 1; j < last; ++j) total += weight[j] * term(index[j]);
    return total;
  }
};

// x [O, H, W, I], y [O, P, Q, I].
struct Sizes {
  int64_t H;
  int64_t W;
  int64_t P;
  int64_t Q;
  int64_t I;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    interpolate_kernel(Sizes s, Places<T> rows, Places<T> columns, int64_t elements, T* y,
                       const T* x) {
  for (int64_t e = thread_number(); e < elements; e += thread_count()) {
    const int64_t q = e / s.I % s.Q;
    const int64_t p = e / s.I / s.Q % s.P;
    const T* const plane = x + e / s.I / s.Q / s.P * s.H * s.W * s.I + e % s.I;
    y[e] = columns.sum(q, [&](int64_t column) {
      return rows.sum(p, [&](int64_t row) { return plane[(row * s.W + column) * s.I]; });
    });
  }
}

void interpolate_cuda(Stream stream, const Tensor& y, const Tensor& x, const AxisWeights& rows,
                      const AxisWeights& columns) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && x.dtype() == y.dtype());
  ASSERT(y.shape()[0] == x.shape()[0] && y.shape()[3] == x.shape()[3]);
  const Sizes s{x.shape()[1], x.shape()[2], y.shape()[1], y.shape()[2], x.shape()[3]};
  const auto run = [&]<class T>() {
    launch_elements(stream, y.numel(), interpolate_kernel<T>, s, Places<T>(rows),
                    Places<T>(columns), y.numel(), y.data<T>(), x.data<T>());
  };
  if (x.dtype() == DType::Float64)
    run.template operator()<double>();
  else
    run.template operator()<float>();
}

REGISTER_KERNEL(interpolate, CUDA, Native, interpolate_cuda);

}  // namespace
}  // namespace ringgrad::cuda
