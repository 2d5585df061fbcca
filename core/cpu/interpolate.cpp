// Weighted sums of rows, and of their pixels, on the CPU: a row of sums stays in the first-level
// cache while the outputs are made of it. An image is read about once and written once.
#include "ringgrad/core/kernels/interpolation_kernels.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/widen.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {
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

  // The sum of output i, of what term(place) is there; a single place's number stays as it is, -0,
  // too.
  template <class Sum, class Term>
  [[gnu::always_inline]] Sum sum(int64_t i, const Term& term) const {
    int64_t j = begin[i];
    const int64_t end = begin[i + 1];
    if (j == end) return Sum{};
    Sum total = weight[j] * term(index[j]);
    for (++j; j < end; ++j) total += weight[j] * term(index[j]);
    return total;
  }
  // The same of rows of n neighbours.
  [[gnu::always_inline]] void sum_rows(T* to, int64_t i, const T* rows, int64_t n) const {
    constexpr int64_t kWidth = sizeof(Register<T>) / sizeof(T);
    const int64_t whole = n / kWidth * kWidth;
    for (int64_t k = 0; k < whole; k += kWidth)
      *reinterpret_cast<UnalignedRegister<T>*>(to + k) = sum<Register<T>>(
          i, [&](int64_t place) { return at<T>(rows + place * n, Neighbours<T>{k}); });
    for (int64_t k = whole; k < n; ++k)
      to[k] = sum<T>(i, [&](int64_t place) { return rows[place * n + k]; });
  }
};

// x [outer, h, w, inner] and y [outer, p, q, inner].
template <class T>
struct Interpolation {
  const T* x;
  T* y;
  Places<T> rows;
  Places<T> columns;
  int64_t outer;
  int64_t h;
  int64_t w;
  int64_t p;
  int64_t q;
  int64_t inner;

  Interpolation(const Tensor& y, const Tensor& x, const AxisWeights& rows,
                const AxisWeights& columns)
      : x(x.data<T>()),
        y(y.data<T>()),
        rows(rows),
        columns(columns),
        outer(x.shape()[0]),
        h(x.shape()[1]),
        w(x.shape()[2]),
        p(y.shape()[1]),
        q(y.shape()[2]),
        inner(x.shape()[3]) {}

  // Makes the row of the image's width from which row r of all outputs is made.
  void sum_of_rows(T* to, int64_t r) const {
    rows.sum_rows(to, r % p, x + r / p * h * w * inner, w * inner);
  }

  void run(Stream stream) const {
    parallel_for(stream, outer * p, grain(2 * q * inner), [&](int64_t r, int64_t end) {
      const Workspace<T> seen(stream, w * inner);
      for (; r < end; ++r) {
        sum_of_rows(seen.data(), r);
        T* const to = y + r * q * inner;
        if (inner == kChannelBlock)
          for (int64_t i = 0; i < q; ++i)
            columns.sum_rows(to + i * kChannelBlock, i, seen.data(), kChannelBlock);
        else
          for (int64_t i = 0; i < q; ++i) columns.sum_rows(to + i * inner, i, seen.data(), inner);
      }
    });
  }

  // Pixels are single numbers: 16 rows at a time are turned, so that their pixels lie side by side.
  void run_turned(Stream stream) const {
    constexpr int64_t kRows = kChannelBlock;
    const int64_t wide = ceil_div(w, kRows) * kRows;
    const int64_t high = ceil_div(q, kRows) * kRows;
    const int64_t all = outer * p;
    parallel_for(stream, ceil_div(all, kRows), grain(2 * kRows * q),
                 [&](int64_t unit, int64_t end) {
                   const Workspace<T> memory(stream, 2 * kRows * (wide + high));
                   T* const seen = memory.data();
                   T* const seen_turned = seen + kRows * wide;
                   T* const made_turned = seen_turned + kRows * wide;
                   T* const made = made_turned + kRows * high;
                   std::fill_n(seen, kRows * wide, T{0});
                   for (; unit < end; ++unit) {
                     const int64_t first = unit * kRows;
                     const int64_t count = std::min(kRows, all - first);
                     for (int64_t i = 0; i < count; ++i) sum_of_rows(seen + i * wide, first + i);
                     for (int64_t i = 0; i < wide; i += kRows)
                       conv::transpose_block(seen + i, wide, seen_turned + i * kRows, kRows);
                     for (int64_t i = 0; i < q; ++i)
                       columns.sum_rows(made_turned + i * kRows, i, seen_turned, kRows);
                     for (int64_t i = 0; i < high; i += kRows)
                       conv::transpose_block(made_turned + i * kRows, kRows, made + i, high);
                     for (int64_t i = 0; i < count; ++i)
                       std::copy_n(made + i * high, q, y + (first + i) * q);
                   }
                 });
  }
};

void interpolate_cpu(Stream stream, const Tensor& y, const Tensor& x, const AxisWeights& rows,
                     const AxisWeights& columns) {
  ASSERT(x.is_contiguous() && y.is_contiguous() && x.dtype() == y.dtype());
  ASSERT(y.shape()[0] == x.shape()[0] && y.shape()[3] == x.shape()[3]);
  visit_wide("interpolate", x.dtype(), [&]<class T>() {
    const Interpolation<T> all(y, x, rows, columns);
    if constexpr (std::is_same_v<T, float>)
      if (all.inner == 1) return all.run_turned(stream);
    all.run(stream);
  });
}

REGISTER_KERNEL(interpolate, CPU, Native, interpolate_cpu);

}  // namespace
}  // namespace ringgrad::cpu
