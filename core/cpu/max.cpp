// The largest and the smallest element along one dimension and their positions, on the CPU.
#include <limits>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// Returns true if v replaces `best`: it is strictly beyond it, or the first NaN. Integers always
// equal themselves, so the second condition costs them nothing. For vectors it answers for each
// lane.
template <bool kMax, class V>
auto beats(V v, V best) {
  return (kMax ? v > best : v < best) | ((v != v) & (best == best));
}

// Returns the best of x [n], contiguous, or NaN if there is one. Carrying the position along would
// double the work, and asking beats() the half: the largest is one instruction, and so is whether
// one of the numbers is NaN.
template <bool kMax, class T, class A = Accumulator<T>>
A best_value(const T* x, int64_t n) {
  using Lanes = Register<std::conditional_t<std::is_floating_point_v<A>, A, float>>;
  decltype(Lanes() != Lanes()) nan_lanes = {};
  bool is_nan = false;
  const auto better = [&](auto best, auto v) {
    if constexpr (std::is_same_v<decltype(v), A>)
      is_nan |= v != v;
    else
      nan_lanes |= v != v;
    return (kMax ? v > best : v < best) ? v : best;
  };
  const auto term = [x](auto i) { return at<A>(x, i); };
  int64_t i = 0;
  // With eight registers no comparison waits for another. With 16, AVX2 would have none left.
  constexpr int kMany = std::max<int>(kCompareLanes, 8 * sizeof(Lanes) / sizeof(A));
  A best = n >= kMany           ? fold_lanes<kMany, A>(i, n, term, better)
           : n >= kCompareLanes ? fold_lanes<kCompareLanes, A>(i, n, term, better)
                                : term(i);
  for (; i < n; ++i) best = better(best, term(i));
  for (size_t lane = 0; lane < sizeof(Lanes) / sizeof(nan_lanes[0]); ++lane)
    is_nan |= nan_lanes[lane] != 0;
  return is_nan ? std::numeric_limits<A>::quiet_NaN() : best;
}

// Returns the first position of the best: it is in the first piece whose best is as good. That
// piece is still in the first-level cache.
template <bool kMax, class T>
int64_t best_in_row(const T* x, int64_t n) {
  constexpr int64_t kPiece = 1024;
  Accumulator<T> best = best_value<kMax>(x, std::min(kPiece, n));
  int64_t i = 0;
  for (int64_t first = kPiece; first < n; first += kPiece) {
    const auto v = best_value<kMax>(x + first, std::min(kPiece, n - first));
    if (beats<kMax>(v, best)) {
      best = v;
      i = first;
    }
  }
  const auto is_best = [best](Accumulator<T> v) { return v == best || (v != v && best != best); };
  while (!is_best(static_cast<Accumulator<T>>(x[i]))) ++i;
  return i;
}

// x [n, inner]: processes at once as many columns as fit into the first-level cache.
template <bool kMax, class T>
void best_in_columns(T* y, int64_t* index, const T* x, int64_t n, int64_t inner, int64_t columns) {
  using A = Accumulator<T>;
  for (int64_t j = 0; j < columns; ++j) {
    y[j] = x[j];
    index[j] = 0;
  }
  for (int64_t i = 1; i < n; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const bool better = beats<kMax>(static_cast<A>(x[i * inner + j]), static_cast<A>(y[j]));
      y[j] = better ? x[i * inner + j] : y[j];
      index[j] = better ? i : index[j];
    }
}

template <bool kMax>
void extremum(const char* name, Stream stream, const Tensor& y, const Tensor& index,
              const Tensor& x) {
  ASSERT(x.dim() == 3 && x.is_contiguous() && y.is_contiguous() && index.is_contiguous());
  const int64_t outer = x.shape()[0];
  const int64_t n = x.shape()[1];
  const int64_t inner = x.shape()[2];
  if (y.numel() == 0) return;
  ASSERT(n >= 1);
  visit_dtype(name, x.dtype(), [&]<class T>() {
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    int64_t* const at = index.data<int64_t>();
    if (inner == 1) {
      const int64_t pieces = ceil_div(n, kUnitElements);  // per row: threads share a long one
      const Workspace<int64_t> best(stream, outer * pieces);
      parallel_for(stream, outer * pieces, grain(std::min(n, kUnitElements)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t unit = begin; unit < end; ++unit) {
                       const int64_t first = unit % pieces * kUnitElements;
                       const T* const piece = from + unit / pieces * n + first;
                       best[unit] =
                           first + best_in_row<kMax>(piece, std::min(kUnitElements, n - first));
                     }
                   });
      parallel_for(stream, outer, grain(pieces), [&](int64_t begin, int64_t end) {
        using A = Accumulator<T>;
        for (int64_t o = begin; o < end; ++o) {
          const T* const row = from + o * n;
          at[o] = best[o * pieces];
          for (int64_t unit = o * pieces + 1; unit < (o + 1) * pieces; ++unit)
            if (beats<kMax>(static_cast<A>(row[best[unit]]), static_cast<A>(row[at[o]])))
              at[o] = best[unit];
          to[o] = row[at[o]];
        }
      });
      return;
    }
    constexpr int64_t kColumns = 512;
    const int64_t tiles = ceil_div(inner, kColumns);
    parallel_for(stream, outer * tiles, grain(n * std::min(inner, kColumns)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const int64_t o = unit / tiles;
                     const int64_t j = unit % tiles * kColumns;
                     best_in_columns<kMax>(to + o * inner + j, at + o * inner + j,
                                           from + o * n * inner + j, n, inner,
                                           std::min(kColumns, inner - j));
                   }
                 });
  });
}

void max_cpu(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x) {
  extremum<true>("max", stream, y, index, x);
}
void min_cpu(Stream stream, const Tensor& y, const Tensor& index, const Tensor& x) {
  extremum<false>("min", stream, y, index, x);
}

REGISTER_KERNEL(max, CPU, Native, max_cpu);
REGISTER_KERNEL(min, CPU, Native, min_cpu);

}  // namespace
}  // namespace ringgrad::cpu
