// The arithmetic of collectives in which one rank has all ranks' elements, which
// core/kernels/reduction.h describes.
#include <algorithm>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/cpu/reduction_parts.h"

namespace ringgrad::cpu {
namespace {

constexpr size_t kBlock = 1024;  // partial results of one block stay in the first-level cache

// Two ranks are the common case and worth a loop without a block of partial results. Each result is
// converted separately: g++ 12 does not vectorise a loop that copies a bfloat16, and would take 5
// times as long.
template <class T, class Op>
void reduce_pair(T* x, T* y, const T* a, const T* b, size_t begin, size_t end) {
  using A = Accumulator<T>;
  const A scale = scale_for<A>(2);
#pragma GCC ivdep
  for (size_t i = begin; i < end; ++i) {
    const A both = Op()(static_cast<A>(a[i]), static_cast<A>(b[i]));
    const A result = finished<Op>(both, scale);
    x[i] = static_cast<T>(result);
    y[i] = static_cast<T>(result);
  }
}

template <class T, class Op>
void combine_all(void* wide_, const void* const* inputs, int ranks, size_t begin, size_t end) {
  using A = Accumulator<T>;
  A* wide = static_cast<A*>(wide_);
  const auto input = [&](int r) { return static_cast<const T*>(inputs[r]) + begin; };
  const size_t n = end - begin;
  for (size_t i = 0; i < n; ++i) wide[i] = static_cast<A>(input(0)[i]);
  for (int r = 1; r < ranks; ++r) {
    const T* x = input(r);
    for (size_t i = 0; i < n; ++i) wide[i] = Op()(wide[i], static_cast<A>(x[i]));
  }
}

template <class T, class Op>
void reduce_all(void* const* results, int num_results, const void* const* inputs, int ranks,
                size_t begin, size_t end) {
  using A = Accumulator<T>;
  const auto input = [&](int r) { return static_cast<const T*>(inputs[r]); };
  const auto result = [&](int r) { return static_cast<T*>(results[r]); };
  if (ranks == 2 && num_results == 2)
    return reduce_pair<T, Op>(result(0), result(1), input(0), input(1), begin, end);

  A wide[kBlock];
  T done[kBlock];
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t n = std::min(kBlock, end - at);
    combine_all<T, Op>(wide, inputs, ranks, at, at + n);
    finish<T, Op>(done, wide, n, ranks);
    for (int r = 0; r < num_results; ++r) std::copy_n(done, n, result(r) + at);
  }
}

template <class Op>
using Summing = std::conditional_t<std::is_same_v<Op, Average>, Sum, Op>;

template <class T, class Op>
struct OfRanks {
  static constexpr ReduceFunctions value = {sizeof(T),
                                            sizeof(Accumulator<T>),
                                            combine<T, Op, T>,
                                            combine<T, Op, Accumulator<T>>,
                                            finish<T, Op>,
                                            combine_all<T, Op>,
                                            &OfRanks<Accumulator<T>, Summing<Op>>::value,
                                            reduce_all<T, Op>};
};

BEFORE_MAIN(rank_reductions, register_reductions(find<OfRanks>, /*of_ranks=*/true));

}  // namespace
}  // namespace ringgrad::cpu
