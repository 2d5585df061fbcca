// Selection of rows and elements by an index, and the gradients. An index outside [0, N) is
// skipped.
//
// Mapping: reading takes one thread per element of y. Adding takes one thread per column (o, i),
// which goes through j in order. So the sum is the same in each run, as the contract requires,
// without atomics. This is slow if there are few columns.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/reduce.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"

namespace ringgrad::cuda {
namespace {

// x (or dx) [O, N, I], y (or dy) [O, M, I]. The index is [M], or [O, M, I] if it names single
// elements.
struct Indexed {
  int64_t O;
  int64_t N;
  int64_t M;
  int64_t I;
  const int64_t* index;
  bool per_element;

  // Returns the position in x of element (o, j, i) of y, or -1.
  __device__ __forceinline__ int64_t place(int64_t o, int64_t j, int64_t i) const {
    const int64_t n = per_element ? index[(o * M + j) * I + i] : index[j];
    return n >= 0 && n < N ? (o * N + n) * I + i : -1;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) read_kernel(Indexed s, T* y, const T* x) {
  for (int64_t e = thread_number(); e < s.O * s.M * s.I; e += thread_count()) {
    const int64_t i = e % s.I;
    const int64_t j = e / s.I % s.M;
    const int64_t o = e / s.I / s.M;
    const int64_t from = s.place(o, j, i);
    if (from >= 0) y[e] = x[from];
  }
}

template <class A, class T>
__global__ void __launch_bounds__(kThreads) add_kernel(Indexed s, A* dx, const T* dy) {
  for (int64_t column = thread_number(); column < s.O * s.I; column += thread_count()) {
    const int64_t o = column / s.I;
    const int64_t i = column % s.I;
    for (int64_t j = 0; j < s.M; ++j) {
      const int64_t to = s.place(o, j, i);
      if (to >= 0) dx[to] = Sum{}(dx[to], static_cast<A>(widen(dy[(o * s.M + j) * s.I + i])));
    }
  }
}

Indexed indexed(const Tensor& x, const Tensor& y, const Tensor& index, bool per_element) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && index.is_contiguous() && x.dtype() == y.dtype());
  ASSERT(y.shape()[0] == x.shape()[0] && y.shape()[2] == x.shape()[2]);
  return {x.shape()[0], x.shape()[1],          y.shape()[1],
          x.shape()[2], index.data<int64_t>(), per_element};
}

void read(const char* name, Stream stream, const Tensor& y, const Tensor& x, const Indexed& s) {
  visit_dtype(name, x.dtype(), [&]<class T>() {
    launch_elements(stream, y.numel(), read_kernel<Element<T>>, s, device_data<T>(y),
                    device_data<T>(x));
  });
}

void add(const char* name, Stream stream, const Tensor& dx, const Tensor& dy, const Indexed& s) {
  visit_dtype(name, dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    // Sums of narrower numbers are computed in the accumulation type and rounded once.
    const Tensor sums = in_dtype(dx, dtype_of<A>);
    launch_elements(stream, s.O * s.I, add_kernel<A, Element<T>>, s, device_data<A>(sums),
                    device_data<T>(dy));
    if (dx.dtype() != dtype_of<A>) kernels::copy(dx, sums);
  });
}

void index_select_cuda(Stream stream, const Tensor& y, const Tensor& x, const Tensor& index) {
  read("index_select", stream, y, x, indexed(x, y, index, false));
}
void gather_cuda(Stream stream, const Tensor& y, const Tensor& x, const Tensor& index) {
  read("gather", stream, y, x, indexed(x, y, index, true));
}
void index_add_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index) {
  add("index_add", stream, dx, dy, indexed(dx, dy, index, false));
}
void scatter_add_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index) {
  add("scatter_add", stream, dx, dy, indexed(dx, dy, index, true));
}

REGISTER_KERNEL(index_select, CUDA, Native, index_select_cuda);
REGISTER_KERNEL(gather, CUDA, Native, gather_cuda);
REGISTER_KERNEL(index_add, CUDA, Native, index_add_cuda);
REGISTER_KERNEL(scatter_add, CUDA, Native, scatter_add_cuda);

}  // namespace
}  // namespace ringgrad::cuda
