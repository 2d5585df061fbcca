// The largest and the smallest element along the middle dimension of x [O, N, I], and their
// positions.
//
// Mapping: if I is 1, a team of threads per row (common/reduce.cuh). Otherwise a thread per output,
// so that neighbouring threads read neighbouring elements of each of the N planes.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/reduce.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"

namespace ringgrad::cuda {
namespace {

constexpr int64_t kNowhere = -1;  // no element yet

template <class A>
struct Found {
  A value;
  int64_t place;
};

// A shuffle moves at most 8 bytes, so value and position are moved separately.
template <class A>
__device__ Found<A> shuffle_xor(Found<A> mine, int step) {
  return {static_cast<A>(__shfl_xor_sync(kFullMask, mine.value, step)),
          __shfl_xor_sync(kFullMask, mine.place, step)};
}

// Returns the better of two: the first NaN, else the larger (smaller) value, and of equal values
// the first.
template <bool kMax>
struct Best {
  template <class A>
  __device__ Found<A> operator()(Found<A> a, Found<A> b) const {
    return precedes(b, a) ? b : a;
  }
  template <class A>
  static __device__ bool precedes(Found<A> a, Found<A> b) {
    if (a.place == kNowhere || b.place == kNowhere) return b.place == kNowhere;
    if (a.value != a.value || b.value != b.value)
      return a.value != a.value && (b.value == b.value || a.place < b.place);
    return a.value == b.value ? a.place < b.place : kMax ? a.value > b.value : a.value < b.value;
  }
};

template <class Team, class T, bool kMax>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(Team team, int64_t rows, int64_t N, T* y, int64_t* index, const T* x) {
  using A = Compute<T>;
  for (int64_t row = team.first_row(); row < rows; row += team.row_step()) {
    Found<A> best{A(0), kNowhere};
    for (int64_t i = team.rank(); i < N; i += team.size())
      best = Best<kMax>{}(best, Found<A>{widen(x[row * N + i]), i});
    best = team.reduce(best, Best<kMax>{}, Found<A>{A(0), kNowhere});
    if (team.rank() != 0) continue;
    y[row] = x[row * N + best.place];
    index[row] = best.place;
  }
}

template <class T, bool kMax>
__global__ void __launch_bounds__(kThreads)
    planes_kernel(int64_t outputs, int64_t N, int64_t I, T* y, int64_t* index, const T* x) {
  using A = Compute<T>;
  for (int64_t output = thread_number(); output < outputs; output += thread_count()) {
    const T* column = x + output / I * N * I + output % I;
    Found<A> best{A(0), kNowhere};
    for (int64_t i = 0; i < N; ++i) best = Best<kMax>{}(best, Found<A>{widen(column[i * I]), i});
    y[output] = column[best.place * I];
    index[output] = best.place;
  }
}

template <bool kMax>
void extremum(const char* name, Stream stream, const Tensor& y, const Tensor& index,
              const Tensor& x) {
  ASSERT(x.dim() == 3 && x.is_contiguous() && y.is_contiguous() && index.is_contiguous());
  const int64_t outer = x.shape()[0];
  const int64_t N = x.shape()[1];
  const int64_t I = x.shape()[2];
  if (outer * I == 0) return;
  ASSERT(N >= 1);
  visit_dtype(name, x.dtype(), [&]<class T>() {
    using D = Element<T>;
    if (I == 1)
      launch_rows(stream, outer, N, rows_kernel<WarpTeam, D, kMax>, rows_kernel<BlockTeam, D, kMax>,
                  outer, N, device_data<T>(y), index.data<int64_t>(), device_data<T>(x));
    else
      launch_elements(stream, outer * I, planes_kernel<D, kMax>, outer * I, N, I, device_data<T>(y),
                      index.data<int64_t>(), device_data<T>(x));
  });
}

void max_cuda(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x) {
  extremum<true>("max", stream, y, index, x);
}
void min_cuda(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x) {
  extremum<false>("min", stream, y, index, x);
}

REGISTER_KERNEL(max, CUDA, Native, max_cuda);
REGISTER_KERNEL(min, CUDA, Native, min_cuda);

}  // namespace
}  // namespace ringgrad::cuda
