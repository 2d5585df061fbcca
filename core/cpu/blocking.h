// How CPU kernels cut their work: into units for parallel_for, and into lanes for the vector
// registers.
//
// A compiler that may not reorder additions cannot vectorise a sum, and one that may makes the
// result depend on the machine. So the order is written down: term i goes to lane i % 64 (of
// doubles i % 32), what is left to lane i % 16, and the lanes are folded in halves. The loop over
// the lanes becomes four vector additions or more, none of which waits for another, and the result
// is the same for any number of threads.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/dtype.h"

namespace ringgrad::cpu {

inline constexpr int kLanes = 16;
// The terms of one partial sum in the type of the terms; beyond it in double.
inline constexpr int64_t kMaxTerms = 4096;
// The elements of a unit of parallel_for, for kernels bound by memory: ~10 µs.
inline constexpr int64_t kUnitElements = 32768;

// The grain for parallel_for whose index stands for `elements` elements.
inline int64_t grain(int64_t elements) {
  return std::max<int64_t>(1, kUnitElements / std::max<int64_t>(1, elements));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A vector register of A, and the index of as many neighbours: a term that takes `auto i` and reads
// with at() is a number for a number, and a vector for Neighbours.
template <class A>
using Register
    __attribute__((vector_size(conv::kLanes * sizeof(float)), aligned(alignof(A)), may_alias)) = A;
template <class A>
struct Neighbours {
  int64_t first;
};

// x[i] in A.
template <class A, class T>
A at(const T* x, int64_t i) {
  return static_cast<A>(static_cast<Accumulator<T>>(x[i]));
}
template <class A, class T>
[[gnu::always_inline]] inline Register<A> at(const T* x, Neighbours<A> i) {
  constexpr int kWidth = sizeof(Register<A>) / sizeof(A);
  if constexpr (std::is_same_v<A, float> && sizeof(T) == 2) {
    return reinterpret_cast<Register<A>>(conv::load(x + i.first));
  } else if constexpr (std::is_arithmetic_v<T>) {
    using Source __attribute__((vector_size(kWidth * sizeof(T)), aligned(alignof(T)), may_alias)) =
        T;
    return __builtin_convertvector(*reinterpret_cast<const Source*>(x + i.first), Register<A>);
  } else {
    A numbers[kWidth];
    for (int lane = 0; lane < kWidth; ++lane) numbers[lane] = at<A>(x, i.first + lane);
    return *reinterpret_cast<const Register<A>*>(numbers);
  }
}

// A row of n numbers as A: where it lies, or of 16-bit numbers a copy in `scratch`. (Loops over
// them make no vectors.)
template <class A, class T>
const A* widened(const T* row, int64_t n, [[maybe_unused]] A* scratch) {
  if constexpr (std::is_same_v<A, T>)
    return row;
  else
    return conv::convert(scratch, row, n), scratch;
}
// The same for results: where to write them, and what brings them to their row in the end.
template <class A, class T>
A* wide_results(T* row, A* scratch) {
  if constexpr (std::is_same_v<A, T>) return row;
  return scratch;
}
template <class A, class T>
void narrow_results(T* row, const A* results, int64_t n) {
  if constexpr (!std::is_same_v<A, T>) conv::convert(row, results, n);
}

template <class Term, class A>
concept VectorTerm = std::floating_point<A> && std::invocable<Term, Neighbours<A>>;

// Folds v in halves, until each lane has all.
template <int kHalf, class V, class Combine, int... I>
[[gnu::always_inline]] inline void fold_register(V& v, const Combine& combine,
                                                 std::integer_sequence<int, I...> lanes) {
  v = combine(v, __builtin_shufflevector(v, v, (I ^ kHalf)...));
  if constexpr (kHalf > 1) fold_register<kHalf / 2>(v, combine, lanes);
}

// term(i), term(i + 1), …, kCount of them at a time, combined in as many lanes, which are then
// folded in halves. Moves i behind the last of them. REQUIRES: i + kCount <= last.
template <int kCount, class A, class Term, class Combine>
[[gnu::always_inline]] inline A fold_lanes(int64_t& i, int64_t last, const Term& term,
                                           const Combine& combine) {
  if constexpr (VectorTerm<Term, A>) {
    constexpr int kWidth = sizeof(Register<A>) / sizeof(A);
    constexpr int kRegisters = kCount / kWidth;
    Register<A> lanes[kRegisters];
    RINGGRAD_UNROLL
    for (int r = 0; r < kRegisters; ++r) lanes[r] = term(Neighbours<A>{i + r * kWidth});
    for (i += kCount; i + kCount <= last; i += kCount) {
      RINGGRAD_UNROLL
      for (int r = 0; r < kRegisters; ++r)
        lanes[r] = combine(lanes[r], term(Neighbours<A>{i + r * kWidth}));
    }
    for (int half = kRegisters / 2; half > 0; half /= 2)
      for (int r = 0; r < half; ++r) lanes[r] = combine(lanes[r], lanes[r + half]);
    fold_register<kWidth / 2>(lanes[0], combine, std::make_integer_sequence<int, kWidth>());
    return lanes[0][0];
  } else {
    A lanes[kCount];
    for (int lane = 0; lane < kCount; ++lane) lanes[lane] = term(i + lane);
    for (i += kCount; i + kCount <= last; i += kCount)
      for (int lane = 0; lane < kCount; ++lane) lanes[lane] = combine(lanes[lane], term(i + lane));
    for (int width = kCount / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane)
        lanes[lane] = combine(lanes[lane], lanes[lane + width]);
    return lanes[0];
  }
}

// term(first) + … + term(last - 1) in A.
template <class A, class Term>
A sum_segment(int64_t first, int64_t last, const Term& term) {
  A total = 0;
  int64_t i = first;
  const auto plus = [](auto a, auto b) { return a + b; };
  constexpr int kManyLanes = 16 * kLanes / sizeof(A);
  if (last - i >= kManyLanes) total = fold_lanes<kManyLanes, A>(i, last, term, plus);
  if (last - i >= kLanes) total += fold_lanes<kLanes, A>(i, last, term, plus);
  for (; i < last; ++i) total += term(i);  // at most 15
  return total;
}

// What partial sums of type A are added in.
template <class A>
using WideSum = std::conditional_t<std::is_floating_point_v<A>, double, A>;

// term(0) + … + term(n - 1): segments of kMaxTerms in A, which are added as WideSum<A>.
template <class A, class Term>
A sum_lanes(int64_t n, Term&& term) {
  WideSum<A> total = 0;
  for (int64_t first = 0; first < n; first += kMaxTerms)
    total += sum_segment<A>(first, std::min(n, first + kMaxTerms), term);
  return static_cast<A>(total);
}

// Loops over lanes that compare need more than 16 of them: g++ unrolls up to 16 iterations into
// branches, and turns more into vector instructions.
inline constexpr int kCompareLanes = 32;

// The largest of term(0), …, term(n - 1), which is a NaN or passes over it where there is one.
// REQUIRES: n >= 1.
template <class A, class Term>
A max_lanes(int64_t n, const Term& term) {
  const auto larger = [](auto a, auto b) { return b > a ? b : a; };
  int64_t i = 0;
  A largest =
      n >= kCompareLanes ? fold_lanes<kCompareLanes, A>(i, n, term, larger) : term(int64_t{0});
  for (; i < n; ++i) largest = larger(largest, term(i));
  return largest;
}

}  // namespace ringgrad::cpu
