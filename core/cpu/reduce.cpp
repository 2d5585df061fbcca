// Sums on the CPU, over any dimensions of a tensor with any strides.
//
// The dimensions become loops, ordered by the strides of x and merged where possible, so that few patterns remain:
//   rows     the innermost loop is summed away: the sum of everything, of the last dimension, of all but the channels
//            of NCHW
//   columns  the innermost loop stays: the sum over the batch, or over all but the channels of NHWC or blocked memory
// Both sum segments of at most kMaxTerms terms in the type of the terms, and add the segments in double.
#include <array>
#include <optional>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

struct Loop {
  int64_t size = 1, x_stride = 0, y_stride = 0;
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
  // body(offset in x) for the indices [first, last); divides once per innermost loop, not once per index.
  template <class Body>
  void walk(int64_t first, int64_t last, Body&& body) const {
    const Loop inner = count > 0 ? loops[count - 1] : Loop{};
    while (first < last) {
      const int64_t begin = offset(first, &Loop::x_stride), n = std::min(last - first, inner.size - first % inner.size);
      for (int64_t i = 0; i < n; ++i) body(begin + i * inner.x_stride);
      first += n;
    }
  }
};

struct SumPlan {
  LoopNest kept, reduced;  // around the innermost loop
  Loop inner;
};

SumPlan plan_sum(const Tensor& y, const Tensor& x) {
  LoopNest all;
  for (int d = 0; d < x.dim(); ++d) {
    ASSERT(y.shape()[d] == x.shape()[d] || y.shape()[d] == 1);
    if (x.shape()[d] != 1) all.loops[all.count++] = {x.shape()[d], x.strides()[d], y.strides()[d], y.shape()[d] == 1};
  }
  // Insertion sort: at most 8 elements. An expanded dimension (stride 0) belongs outside.
  const auto before = [](const Loop& a, const Loop& b) {
    return a.x_stride == 0 ? b.x_stride != 0 : b.x_stride != 0 && a.x_stride > b.x_stride;
  };
  for (int i = 1; i < all.count; ++i)
    for (int j = i; j > 0 && before(all.loops[j], all.loops[j - 1]); --j) std::swap(all.loops[j], all.loops[j - 1]);

  SumPlan plan;
  plan.inner.reduced = true;
  for (int i = 0; i < all.count; ++i) {
    const Loop& next = all.loops[i];
    const Loop outer = plan.inner;
    const bool merge = outer.reduced == next.reduced && outer.x_stride == next.x_stride * next.size &&
                       (next.reduced || outer.y_stride == next.y_stride * next.size);
    plan.inner = next;
    if (i == 0) continue;
    if (merge)
      plan.inner.size *= outer.size;
    else
      (outer.reduced ? plan.reduced : plan.kept).loops[outer.reduced ? plan.reduced.count++ : plan.kept.count++] =
          outer;
  }
  return plan;
}

template <class T>
using Term = Wrapping<std::conditional_t<std::is_integral_v<T>, int64_t, Accumulator<T>>>;
template <class T>
using Total = WideSum<Term<T>>;
template <class T>
using Scaled = std::conditional_t<std::is_integral_v<T>, int64_t, double>;  // a total with its sign

// The innermost loop in tiles of this many columns, whose running sums stay in the first-level cache.
constexpr int64_t kColumns = 512;

// segment(x_begin, row_or_piece, width, out) writes the partial sums of one segment of one tile; they are added in the
// order of the segments, which depends on the shape alone.
template <class T, class Segment>
void sum_segments(Stream stream, const SumPlan& plan, int64_t columns, int64_t segments, int64_t segment_elements,
                  const Tensor& y, double scale, Segment&& segment) {
  const int64_t tiles = ceil_div(columns, kColumns), width = std::min(columns, kColumns);
  const int64_t outputs = plan.kept.size() * tiles;
  T* const y_data = y.data<T>();
  const auto write = [&](int64_t output, const Total<T>* partial) {
    const int64_t first = output % tiles * kColumns;
    T* const to = y_data + plan.kept.offset(output / tiles, &Loop::y_stride) + first * plan.inner.y_stride;
    for (int64_t j = 0; j < std::min(width, columns - first); ++j) {
      Total<T> total = 0;
      for (int64_t s = 0; s < segments; ++s) total += partial[s * width + j];
      const auto sum = static_cast<Scaled<T>>(total);
      to[j * plan.inner.y_stride] = static_cast<T>(scale == 1 ? sum : static_cast<Scaled<T>>(scale * sum));
    }
  };
  std::optional<Workspace<Total<T>>> partials;
  if (segments > 1) partials.emplace(stream, outputs * segments * width);
  parallel_for(stream, outputs * segments, grain(segment_elements), [&](int64_t begin, int64_t end) {
    Total<T> local[kColumns];
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t output = unit / segments, first = output % tiles * kColumns;
      const int64_t x_offset = plan.kept.offset(output / tiles, &Loop::x_stride) + first * plan.inner.x_stride;
      Total<T>* const out = partials ? partials->data() + unit * width : local;
      segment(x_offset, unit % segments, std::min(width, columns - first), out);
      if (!partials) write(output, out);
    }
  });
  if (segments != 1)
    parallel_for(stream, outputs, grain(segments * width), [&](int64_t begin, int64_t end) {
      for (int64_t output = begin; output < end; ++output)
        write(output, partials ? partials->data() + output * segments * width : nullptr);
    });
}

// A segment is several short rows, or a piece of a long one.
template <class T>
void sum_rows(Stream stream, const SumPlan& plan, const Tensor& y, const T* x, double scale) {
  const int64_t rows = plan.reduced.size(), length = plan.inner.size, stride = plan.inner.x_stride;
  const int64_t pieces = std::max<int64_t>(1, ceil_div(length, kMaxTerms));
  const int64_t segment_rows = std::clamp<int64_t>(kMaxTerms / std::max<int64_t>(1, length), 1, rows + 1);
  const int64_t segments = ceil_div(rows, segment_rows) * pieces;
  sum_segments<T>(stream, plan, 1, segments, std::min(segment_rows * length, kMaxTerms), y, scale,
                  [&](int64_t x_offset, int64_t s, int64_t, Total<T>* out) {
                    const int64_t first_row = s / pieces * segment_rows, first = s % pieces * kMaxTerms;
                    const int64_t n = std::min(kMaxTerms, length - first);
                    Term<T> total = 0;
                    plan.reduced.walk(first_row, std::min(rows, first_row + segment_rows), [&](int64_t offset) {
                      const T* row = x + x_offset + offset + first * stride;
                      if (stride == 1)
                        total += sum_lanes<Term<T>>(n, [row](auto i) { return at<Term<T>>(row, i); });
                      else
                        total += sum_lanes<Term<T>>(
                            n, [row, stride](int64_t i) { return static_cast<Term<T>>(row[i * stride]); });
                    });
                    *out = total;
                  });
}

// Rows that are added in the type of the terms before their sum goes on in double: as many as keep the error that of a
// row's sum, whose 64 lanes of float have up to 64 terms.
constexpr int64_t kRunningRows = 64;

// out[j] = Σ x[r, j] over the rows [first, last). kFixed columns, known to the compiler, stay in a register (16 of
// them: a pixel of channel-blocked memory); 0 means n.
template <int kFixed, class T>
void add_rows(const LoopNest& rows, const T* x, int64_t stride, int64_t first, int64_t last, int64_t n, Total<T>* out) {
  const int64_t columns = kFixed ? kFixed : n;
  std::fill_n(out, columns, Total<T>{0});
  for (int64_t begin = first; begin < last; begin += kRunningRows) {
    Term<T> total[kFixed ? kFixed : kColumns] = {};
    rows.walk(begin, std::min(last, begin + kRunningRows), [&](int64_t offset) {
      const T* row = x + offset;
      if (kFixed || stride == 1)
        for (int64_t j = 0; j < columns; ++j) total[j] += static_cast<Term<T>>(row[j]);
      else
        for (int64_t j = 0; j < columns; ++j) total[j] += static_cast<Term<T>>(row[j * stride]);
    });
    for (int64_t j = 0; j < columns; ++j) out[j] += total[j];
  }
}

// A segment is a group of rows, added column by column.
template <class T>
void sum_columns(Stream stream, const SumPlan& plan, const Tensor& y, const T* x, double scale) {
  const int64_t rows = plan.reduced.size(), columns = plan.inner.size, stride = plan.inner.x_stride;
  const int64_t width = std::min(columns, kColumns);
  const int64_t segment_rows = std::clamp<int64_t>(kUnitElements / std::max<int64_t>(1, width), 1, kMaxTerms);
  const auto add = columns == kLanes && stride == 1 ? add_rows<kLanes, T> : add_rows<0, T>;
  sum_segments<T>(stream, plan, columns, ceil_div(rows, segment_rows), std::min(rows, segment_rows) * width, y, scale,
                  [&](int64_t x_offset, int64_t s, int64_t n, Total<T>* out) {
                    add(plan.reduced, x + x_offset, stride, s * segment_rows, std::min(rows, (s + 1) * segment_rows), n,
                        out);
                  });
}

void sum_strided(Stream stream, const Tensor& y, const Tensor& x, double scale) {
  ASSERT(y.dim() == x.dim() && y.dtype() == x.dtype() && y.is_contiguous());
  const SumPlan plan = plan_sum(y, x);
  visit_dtype("sum", x.dtype(), [&]<class T>() {
    if (plan.inner.reduced)
      sum_rows<T>(stream, plan, y, x.data<T>(), scale);
    else
      sum_columns<T>(stream, plan, y, x.data<T>(), scale);
  });
}

void sum_cpu(Stream stream, const Tensor& y, const Tensor& x, double scale) {
  if (!x.is_channel_blocked()) return sum_strided(stream, y, x, scale);
  // Channel-blocked memory is a strided array [N, ⌈C/16⌉, 16, H, W] whose last channels are zeros.
  const int64_t n = x.shape()[0], blocks = ceil_div(x.shape()[1], kChannelBlock), h = x.shape()[2], w = x.shape()[3];
  const Strides strides{blocks * h * w * kChannelBlock, h * w * kChannelBlock, 1, w * kChannelBlock, kChannelBlock};
  const Tensor blocked(x.storage(), {n, blocks, kChannelBlock, h, w}, strides, x.storage_offset(), x.dtype());
  const bool keeps_channels = y.shape()[1] != 1;
  const Shape sums{y.shape()[0], keeps_channels ? blocks : 1, keeps_channels ? kChannelBlock : 1, y.shape()[2],
                   y.shape()[3]};
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
    const int64_t n = x.numel(), segments = ceil_div(n, kMaxTerms);
    Workspace<double> partial(stream, segments);
    parallel_for(stream, segments, kUnitElements / kMaxTerms, [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s)
        partial[s] = sum_lanes<A>(std::min(kMaxTerms, n - s * kMaxTerms), [row = data + s * kMaxTerms](auto i) {
          const auto value = at<A>(row, i);
          return value * value;
        });
    });
    double total = 0;
    for (int64_t s = 0; s < segments; ++s) total += partial[s];
    *y.data<A>() = static_cast<A>(total);
  });
}

REGISTER_KERNEL(sum, DeviceType::CPU, Provider::Native, sum_cpu);
REGISTER_KERNEL(sum_squares, DeviceType::CPU, Provider::Native, sum_squares_cpu);

}  // namespace
}  // namespace ringgrad::cpu
