// Divides the work of CPU kernels into units for parallel_for and into lanes for the vector
// registers.
//
// A compiler that may not reorder additions cannot vectorise a sum. One that may makes the result
// depend on the machine. So the order is fixed here: term i goes to lane i % 64 (for double i %
// 32), the remaining terms to lane i % 16, and the lanes are folded in halves. The loop over the
// lanes becomes four or more vector additions that do not wait for each other. The result is the
// same for any number of threads.
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
// The most terms that one partial sum adds in the type of the terms. Partial sums are added in
// double.
inline constexpr int64_t kMaxTerms = 4096;
// The elements of a unit of parallel_for in kernels bound by memory: ~10 µs.
inline constexpr int64_t kUnitElements = 32768;

// Returns the grain for a parallel_for in which each index stands for `elements` elements.
inline int64_t grain(int64_t elements) {
  return std::max<int64_t>(1, kUnitElements / std::max<int64_t>(1, elements));
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A vector register of A, and the index of as many neighbours. A term that takes `auto i` and reads
// with at() gives a number for an integer index, and a vector for Neighbours.
template <class A>
using Register __attribute__((vector_size(conv::kLanes * sizeof(float)), may_alias)) = A;
template <class A>
struct Neighbours {
  int64_t first;
};
// The same in memory, at any number's address. clang ignores aligned() in an alias template.
template <class A>
struct RegisterInMemory {
  typedef A Type
      __attribute__((vector_size(conv::kLanes * sizeof(float)), aligned(alignof(A)), may_alias));
};
template <class A>
using UnalignedRegister = typename RegisterInMemory<A>::Type;
static_assert(alignof(UnalignedRegister<double>) == alignof(double));

// Returns x[i] converted to A.
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
    return *reinterpret_cast<const UnalignedRegister<A>*>(numbers);
  }
}

// Returns a row of n numbers as A: the row itself, or for 16-bit numbers a converted copy in
// `scratch`. (g++ does not vectorise loops over those.)
template <class A, class T>
const A* widened(const T* row, int64_t n, [[maybe_unused]] A* scratch) {
  if constexpr (std::is_same_v<A, T>)
    return row;
  else
    return conv::convert(scratch, row, n), scratch;
}
// The same for results: wide_results() returns the array to write to, and narrow_results() converts
// it into the row.
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

// Folds v in halves, until each lane has the combination of all lanes.
template <int kHalf, class V, class Combine, int... I>
[[gnu::always_inline]] inline void fold_register(V& v, const Combine& combine,
                                                 std::integer_sequence<int, I...> lanes) {
  v = combine(v, __builtin_shufflevector(v, v, (I ^ kHalf)...));
  if constexpr (kHalf > 1) fold_register<kHalf / 2>(v, combine, lanes);
}

// Combines term(i), term(i + 1), … up to `last`, kCount at a time in as many lanes, which are then
// folded in halves. Advances i past the last term used. REQUIRES: i + kCount <= last.
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

// Returns term(first) + … + term(last - 1), added in A.
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

// The type in which partial sums of type A are added.
template <class A>
using WideSum = std::conditional_t<std::is_floating_point_v<A>, double, A>;

// Returns term(0) + … + term(n - 1). Segments of kMaxTerms terms are added in A, and their sums in
// WideSum<A>.
template <class A, class Term>
A sum_lanes(int64_t n, Term&& term) {
  WideSum<A> total = 0;
  for (int64_t first = 0; first < n; first += kMaxTerms)
    total += sum_segment<A>(first, std::min(n, first + kMaxTerms), term);
  return static_cast<A>(total);
}

// Loops over lanes that compare need more than 16 lanes. g++ unrolls loops of up to 16 iterations
// into branches, and turns longer ones into vector instructions.
inline constexpr int kCompareLanes = 32;

// Returns the largest of term(0), …, term(n - 1). If one of them is NaN, the result is NaN or
// ignores it. REQUIRES: n >= 1.
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
