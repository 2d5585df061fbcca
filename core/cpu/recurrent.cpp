// The cells of recurrent networks on the CPU: the formulas of core/kernels/recurrent_cells.h,
// vectorised over the units of a sample.
#include "ringgrad/core/kernels/recurrent_cells.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels/recurrent_kernels.h"

namespace ringgrad::cpu {
namespace {

// The loop is a separate function that takes everything by value. The compiler must assume that the
// stores overwrite what a closure holds by reference, and would not vectorise.
template <class F>
[[gnu::noinline]] void each_column(F f, int64_t row, int64_t columns) {
#pragma GCC ivdep
  for (int64_t column = 0; column < columns; ++column) f(row, column);
}

struct Cpu {
  using Math = VectorMath;
  template <class T>
  struct Memory {
    T* data;
    explicit Memory(const Tensor& x) : data(x.data<T>()) { ASSERT(x.is_contiguous()); }
    Accumulator<T> read(int64_t i) const { return static_cast<Accumulator<T>>(data[i]); }
    void write(int64_t i, Accumulator<T> value) const { data[i] = static_cast<T>(value); }
  };
  template <class F>
  static void for_each(Stream stream, int64_t rows, int64_t columns, const F& f) {
    parallel_for(stream, rows, grain(16 * columns), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) each_column(f, row, columns);
    });
  }
};
using Cells = RecurrentCells<Cpu>;

#define REGISTER(NAME, FORMULAS)              \
  constexpr auto NAME##_cpu = FORMULAS::NAME; \
  REGISTER_KERNEL(NAME, CPU, Native, NAME##_cpu);

RINGGRAD_RECURRENT_KERNELS(REGISTER)

}  // namespace
}  // namespace ringgrad::cpu
