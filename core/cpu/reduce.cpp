// Sums on the CPU, over any dimensions of a tensor with any strides.
//
// The dimensions become loops, ordered by the strides of x and merged if possible, so that few
// patterns remain:
//   rows     the innermost loop is summed away: the sum of everything, of the last dimension, or of
//            all but the channels of NCHW
//   columns  the innermost loop stays: the sum over the batch, or over all but the channels of NHWC
//            or blocked memory
// Both sum segments of at most kMaxTerms terms in the type of the terms, and add the segments in
// double. A segment of float that overflows, although the whole sum may not, is summed again in
// double.
#include <array>
#include <cfloat>
#include <cmath>
#include <optional>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// By one without a division, which takes longer than the sum of a short row.
struct Division {
  int64_t quotient;
  int64_t rest;
  Division(int64_t a, int64_t b) : quotient(b == 1 ? a : a / b), rest(b == 1 ? 0 : a % b) {}
};

struct Loop {
  int64_t size = 1;
  int64_t x_stride = 0;
  int64_t y_stride = 0;
  bool reduced = false;
};

struct LoopNest {
  std::array<Loop, kMaxDims> loops;  // outermost first
  int count = 0;

  int64_t size() const {
    int64_t product = 1;
    for (int i = 0; i < count; ++i) product *= loops[i].size;
    return product;
  }
  int64_t offset(int64_t index, int64_t Loop::*stride) const {
    int64_t result = 0;
    for (int i = count - 1; i > 0; --i) {
      result += index % loops[i].size * (loops[i].*stride);
      index /= loops[i].size;
    }
    return count > 0 ? result + index * (loops[0].*stride) : result;
  }
  // Calls body(offset in x) for the indices [first, last). Divides once per innermost loop, not
  // once per index.
  template <class Body>
  void walk(int64_t first, int64_t last, Body&& body) const {
    const Loop inner = count > 0 ? loops[count - 1] : Loop{};
    while (first < last) {
      const int64_t begin = offset(first, &Loop::x_stride);
      const int64_t n = std::min(last - first, inner.size - Division(first, inner.size).rest);
      for (int64_t i = 0; i < n; ++i) body(begin + i * inner.x_stride);
      first += n;
    }
  }
};

struct SumPlan {
  // around the innermost loop
  LoopNest kept;
  LoopNest reduced;
  Loop inner;
};

SumPlan plan_sum(const Tensor& y, const Tensor& x) {
  LoopNest all;
  for (int d = 0; d < x.dim(); ++d) {
    ASSERT(y.shape()[d] == x.shape()[d] || y.shape()[d] == 1);
    if (x.shape()[d] != 1)
      all.loops[all.count++] = {x.shape()[d], x.strides()[d], y.strides()[d], y.shape()[d] == 1};
  }
  // Insertion sort of at most 8 elements. An expanded dimension (stride 0) belongs outside.
  const auto before = [](const Loop& a, const Loop& b) {
    return a.x_stride == 0 ? b.x_stride != 0 : b.x_stride != 0 && a.x_stride > b.x_stride;
  };
  for (int i = 1; i < all.count; ++i)
    for (int j = i; j > 0 && before(all.loops[j], all.loops[j - 1]); --j)
      std::swap(all.loops[j], all.loops[j - 1]);

  SumPlan plan;
  plan.inner.reduced = true;
  for (int i = 0; i < all.count; ++i) {
    const Loop& next = all.loops[i];
    const Loop outer = plan.inner;
    const bool merge = outer.reduced == next.reduced &&
                       outer.x_stride == next.x_stride * next.size &&
                       (next.reduced || outer.y_stride == next.y_stride * next.size);
    plan.inner = next;
    if (i == 0) continue;
    if (merge)
      plan.inner.size *= outer.size;
    else
      (outer.reduced ? plan.reduced : plan.kept)
          .loops[outer.reduced ? plan.reduced.count++ : plan.kept.count++] = outer;
  }
  return plan;
}

template <class T>
using Term = Wrapping<std::conditional_t<std::is_integral_v<T>, int64_t, Accumulator<T>>>;
template <class A>
using Total = WideSum<A>;
template <class A>
using Scaled = std::conditional_t<std::is_integral_v<A>, int64_t, double>;  // signed total

// The term of a plain sum is x itself.
struct Itself {
  Itself from(int64_t) const { return {}; }
  Itself column(int64_t) const { return {}; }
  auto operator()(auto x) const { return x; }
};

// The term is (x - mean)². Each output has its own mean, and the means of neighbouring columns are
// neighbours in memory.
struct SquaredDeviation {
  const double* mean;
  int64_t column_stride = 0;

  SquaredDeviation from(int64_t output) const { return {mean + output, column_stride}; }
  SquaredDeviation column(int64_t j) const { return {mean + j * column_stride, column_stride}; }
  auto operator()(auto x) const {
    const auto deviation = x - *mean;
    return deviation * deviation;
  }
};

// The innermost loop runs in tiles of this many columns, whose running sums stay in the first-level
// cache.
constexpr int64_t kColumns = 512;

// Calls segment(x_begin, y_begin, row_or_piece, width, out), which writes the partial sums of one
// segment of one tile. They are added in the order of the segments, which depends on the shape
// alone.
template <class A, class Y, class Segment>
void sum_segments(Stream stream, const SumPlan& plan, int64_t columns, int64_t segments,
                  int64_t segment_elements, Y* y, double scale, Segment&& segment) {
  const int64_t tiles = ceil_div(columns, kColumns);
  const int64_t width = std::min(columns, kColumns);
  const int64_t outputs = plan.kept.size() * tiles;
  const auto first_of = [&](int64_t output, int64_t Loop::*stride) {
    const Division at(output, tiles);
    return plan.kept.offset(at.quotient, stride) + at.rest * kColumns * (plan.inner.*stride);
  };
  const auto write = [&](int64_t output, const Total<A>* partial) {
    Y* const to = y + first_of(output, &Loop::y_stride);
    const int64_t wide = std::min(width, columns - Division(output, tiles).rest * kColumns);
    Total<A> totals[kColumns];
    std::fill_n(totals, wide, Total<A>{0});
    for (int64_t s = 0; s < segments; ++s)
      for (int64_t j = 0; j < wide; ++j) totals[j] += partial[s * width + j];
    for (int64_t j = 0; j < wide; ++j) {
      const auto sum = static_cast<Scaled<A>>(totals[j]);
      to[j * plan.inner.y_stride] =
          static_cast<Y>(scale == 1 ? sum : static_cast<Scaled<A>>(scale * sum));
    }
  };
  std::optional<Workspace<Total<A>>> partials;
  if (segments > 1) partials.emplace(stream, outputs * segments * width);
  parallel_for(
      stream, outputs * segments, grain(segment_elements), [&](int64_t begin, int64_t end) {
        Total<A> local[kColumns];
        for (int64_t unit = begin; unit < end; ++unit) {
          const auto [output, place] = Division(unit, segments);
          Total<A>* const out = partials ? partials->data() + unit * width : local;
          segment(first_of(output, &Loop::x_stride), first_of(output, &Loop::y_stride), place,
                  std::min(width, columns - Division(output, tiles).rest * kColumns), out);
          if (!partials) write(output, out);
        }
      });
  if (segments != 1)
    parallel_for(stream, outputs, grain(segments * width), [&](int64_t begin, int64_t end) {
      for (int64_t output = begin; output < end; ++output)
        write(output, partials ? partials->data() + output * segments * width : nullptr);
    });
}

// The rows that are added in the type of the terms before their sum is added in double. With this
// number the error equals that of a row's sum, whose 64 lanes of float have up to 64 terms each.
constexpr int64_t kRunningRows = 64;

// Returns Σ term(x[r, i]) over the rows [first, last) and i < n, added in A.
template <class A, class T, class F>
Total<A> add_lengths(const LoopNest& rows, const T* x, int64_t stride, int64_t first, int64_t last,
                     int64_t n, const F& term) {
  Total<A> total = 0;
  for (int64_t begin = first; begin < last; begin += kRunningRows) {
    A running = 0;
    rows.walk(begin, std::min(last, begin + kRunningRows), [&](int64_t offset) {
      const T* row = x + offset;
      if (stride == 1)
        running += sum_lanes<A>(n, [row, term](auto i) { return term(at<A>(row, i)); });
      else
        running += sum_lanes<A>(n, [row, stride, term](int64_t i) {
          return static_cast<A>(term(static_cast<A>(row[i * stride])));
        });
    });
    total += running;
  }
  return total;
}

// A segment is several short rows, or a piece of a long one.
template <class A, class T, class Y, class F>
void sum_rows(Stream stream, const SumPlan& plan, Y* y, const T* x, double scale, const F& f) {
  const int64_t rows = plan.reduced.size();
  const int64_t length = plan.inner.size;
  const int64_t stride = plan.inner.x_stride;
  const int64_t pieces = std::max<int64_t>(1, ceil_div(length, kMaxTerms));
  const int64_t segment_rows =
      std::clamp<int64_t>(kMaxTerms / std::max<int64_t>(1, length), 1, rows + 1);
  const int64_t segments = ceil_div(rows, segment_rows) * pieces;
  sum_segments<A>(stream, plan, 1, segments, std::min(segment_rows * length, kMaxTerms), y, scale,
                  [&](int64_t x_offset, int64_t y_offset, int64_t s, int64_t, Total<A>* out) {
                    const Division place(s, pieces);
                    const int64_t first_row = place.quotient * segment_rows;
                    const int64_t first = place.rest * kMaxTerms;
                    const int64_t n = std::min(kMaxTerms, length - first);
                    const F term = f.from(y_offset);
                    const int64_t last_row = std::min(rows, first_row + segment_rows);
                    const T* const from = x + x_offset + first * stride;
                    *out = add_lengths<A>(plan.reduced, from, stride, first_row, last_row, n, term);
                    if constexpr (std::is_same_v<A, float>)
                      if (!std::isfinite(*out))
                        *out = add_lengths<double>(plan.reduced, from, stride, first_row, last_row,
                                                   n, term);
                  });
}

// Computes out[j] = Σ f(x[r, j]) over the rows [first, last). If kFixed is not 0, the number of
// columns is known to the compiler and the sums stay in a register (16 of them: a pixel of
// channel-blocked memory). If it is 0, there are n columns.
template <int kFixed, class A, class T, class F>
void add_rows(const LoopNest& rows, const T* x, int64_t stride, int64_t first, int64_t last,
              int64_t n, const F& f, Total<A>* out) {
  const int64_t columns = kFixed ? kFixed : n;
  std::fill_n(out, columns, Total<A>{0});
  for (int64_t begin = first; begin < last; begin += kRunningRows) {
    A total[kFixed ? kFixed : kColumns] = {};
    const T* at[kRunningRows];
    int64_t count = 0;
    rows.walk(begin, std::min(last, begin + kRunningRows),
              [&](int64_t offset) { at[count++] = x + offset; });
    const auto add = [&](const auto*... row) {
      if (kFixed || stride == 1)
        for (int64_t j = 0; j < columns; ++j)
          total[j] = (total[j] + ... + f.column(j)(static_cast<A>(row[j])));
      else
        for (int64_t j = 0; j < columns; ++j)
          total[j] = (total[j] + ... + f.column(j)(static_cast<A>(row[j * stride])));
    };
    // Four at once, because a total is loaded and stored each time.
    int64_t r = 0;
    for (; r + 4 <= count; r += 4) add(at[r], at[r + 1], at[r + 2], at[r + 3]);
    for (; r < count; ++r) add(at[r]);
    for (int64_t j = 0; j < columns; ++j) out[j] += total[j];
  }
}

// A segment is a group of rows, added column by column.
template <class A, class T, class Y, class F>
void sum_columns(Stream stream, const SumPlan& plan, Y* y, const T* x, double scale, const F& f) {
  const int64_t rows = plan.reduced.size();
  const int64_t columns = plan.inner.size;
  const int64_t stride = plan.inner.x_stride;
  const int64_t width = std::min(columns, kColumns);
  const int64_t segment_rows =
      std::clamp<int64_t>(kUnitElements / std::max<int64_t>(1, width), 1, kMaxTerms);
  const auto add =
      columns == kLanes && stride == 1 ? add_rows<kLanes, A, T, F> : add_rows<0, A, T, F>;
  sum_segments<A>(stream, plan, columns, ceil_div(rows, segment_rows),
                  std::min(rows, segment_rows) * width, y, scale,
                  [&](int64_t x_offset, int64_t y_offset, int64_t s, int64_t n, Total<A>* out) {
                    const int64_t first = s * segment_rows;
                    const int64_t last = std::min(rows, first + segment_rows);
                    add(plan.reduced, x + x_offset, stride, first, last, n, f.from(y_offset), out);
                    if constexpr (std::is_same_v<A, float>) {
                      bool overflows = false;
                      for (int64_t j = 0; j < n; ++j) overflows |= !(std::abs(out[j]) <= DBL_MAX);
                      if (overflows)
                        add_rows<0, double>(plan.reduced, x + x_offset, stride, first, last, n,
                                            f.from(y_offset), out);
                    }
                  });
}

template <class A, class T, class Y, class F>
void sum_terms(Stream stream, const SumPlan& plan, Y* y, const T* x, double scale, const F& f) {
  if (plan.inner.reduced)
    sum_rows<A>(stream, plan, y, x, scale, f);
  else
    sum_columns<A>(stream, plan, y, x, scale, f);
}

void sum_strided(Stream stream, const Tensor& y, const Tensor& x, double scale) {
  ASSERT(y.dim() == x.dim() && y.is_contiguous());
  const SumPlan plan = plan_sum(y, x);
  if (y.dtype() != x.dtype())
    return visit_floating("sum", x.dtype(), [&]<class T>() {
      if (y.dtype() == DType::Float64)
        sum_terms<double>(stream, plan, y.data<double>(), x.data<T>(), scale, Itself{});
      else
        sum_terms<float>(stream, plan, y.data<float>(), x.data<T>(), scale, Itself{});
    });
  visit_dtype("sum", x.dtype(), [&]<class T>() {
    sum_terms<Term<T>>(stream, plan, y.data<T>(), x.data<T>(), scale, Itself{});
  });
}

void squared_deviations_cpu(Stream stream, const Tensor& y, const Tensor& x, const Tensor& mean) {
  ASSERT(y.dim() == x.dim() && y.is_contiguous() && !x.is_channel_blocked());
  ASSERT(!mean || (mean.is_contiguous() && mean.shape() == y.shape()));
  const Tensor zeros = mean ? mean : full(y.shape(), 0, y.options());
  const SumPlan plan = plan_sum(y, x);
  const SquaredDeviation term = {zeros.data<double>(), plan.inner.y_stride};
  visit_floating("squared_deviations", x.dtype(), [&]<class T>() {
    sum_terms<double>(stream, plan, y.data<double>(), x.data<T>(), 1, term);
  });
}

void sum_cpu(Stream stream, const Tensor& y, const Tensor& x, double scale) {
  if (!x.is_channel_blocked()) return sum_strided(stream, y, x, scale);
  // Channel-blocked memory is a strided array [N, ⌈C/16⌉, 16, H, W] whose last channels are zeros.
  const int64_t n = x.shape()[0];
  const int64_t blocks = ceil_div(x.shape()[1], kChannelBlock);
  const int64_t h = x.shape()[2];
  const int64_t w = x.shape()[3];
  const Strides strides{blocks * h * w * kChannelBlock, h * w * kChannelBlock, 1, w * kChannelBlock,
                        kChannelBlock};
  const Tensor blocked(x.storage(), {n, blocks, kChannelBlock, h, w}, strides, x.storage_offset(),
                       x.dtype());
  const bool keeps_channels = y.shape()[1] != 1;
  const Shape sums{y.shape()[0], keeps_channels ? blocks : 1, keeps_channels ? kChannelBlock : 1,
                   y.shape()[2], y.shape()[3]};
  const Tensor padded = empty(sums, {y.dtype(), y.device()});
  sum_strided(stream, padded, blocked, scale);
  const Strides channels = contiguous_strides({sums[0], sums[1] * sums[2], sums[3], sums[4]});
  kernels::copy(y, padded.as_strided(y.shape(), channels, 0));
}

void sum_squares_cpu(Stream stream, const Tensor& y, const Tensor& x) {
  ASSERT(x.is_contiguous() && y.numel() == 1);
  visit_floating("sum_squares", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T* const data = x.data<T>();
    const int64_t n = x.numel();
    const int64_t segments = ceil_div(n, kMaxTerms);
    Workspace<double> partial(stream, segments);
    parallel_for(stream, segments, kUnitElements / kMaxTerms, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s)
        partial[s] = sum_lanes<A>(std::min(kMaxTerms, n - s * kMaxTerms),
                                  [row = data + s * kMaxTerms](auto i) {
                                    const auto value = at<A>(row, i);
                                    return value * value;
                                  });
    });
    double total = 0;
    for (int64_t s = 0; s < segments; ++s) total += partial[s];
    *y.data<A>() = static_cast<A>(total);
  });
}

REGISTER_KERNEL(sum, CPU, Native, sum_cpu);
REGISTER_KERNEL(squared_deviations, CPU, Native, squared_deviations_cpu);
REGISTER_KERNEL(sum_squares, CPU, Native, sum_squares_cpu);

}  // namespace
}  // namespace ringgrad::cpu
