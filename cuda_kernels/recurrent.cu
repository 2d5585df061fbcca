// The cells of recurrent networks: the formulas of core/kernels/recurrent_cells.h.
//
// Mapping: one thread per unit of a sample, in strides of the grid. Neighbours read neighbours.
#include "ringgrad/core/kernels/recurrent_cells.h"

#include "ringgrad/core/kernels/elementwise_functions.h"
#include "ringgrad/core/kernels/recurrent_kernels.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

template <class F>
__global__ void __launch_bounds__(kThreads) each_kernel(F f, int64_t n, int64_t columns) {
  for (int64_t i = thread_number(); i < n; i += thread_count()) f(i / columns, i % columns);
}

struct Cuda {
  using Math = StandardMath;
  template <class T>
  struct Memory {
    Element<T>* data;
    explicit Memory(const Tensor& x) : data(device_data<T>(x)) {}
    RINGGRAD_HOST_DEVICE Accumulator<T> read(int64_t i) const {
      return static_cast<Accumulator<T>>(data[i]);
    }
    RINGGRAD_HOST_DEVICE void write(int64_t i, Accumulator<T> value) const {
      data[i] = Element<T>(value);
    }
  };
  template <class F>
  static void for_each(Stream stream, int64_t rows, int64_t columns, const F& f) {
    launch_elements(stream, rows * columns, each_kernel<F>, f, rows * columns, columns);
  }
};
using Cells = RecurrentCells<Cuda>;

#define REGISTER(NAME, FORMULAS)               \
  constexpr auto NAME##_cuda = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, CUDA, Native, NAME##_cuda);

RINGGRAD_RECURRENT_KERNELS(REGISTER)

}  // namespace
}  // namespace ringgrad::cuda
