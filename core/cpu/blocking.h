// How CPU kernels cut their work: into units for parallel_for, and into lanes for the vector registers.
//
// A compiler that may not reorder additions cannot vectorise a sum, and one that may makes the result depend on the
// machine. So the order is written down: term i goes to lane i % 16, and the lanes are folded in halves. The loop over
// the lanes becomes one vector addition (0.03 ns per float), and the result is the same for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace ringgrad::cpu {

inline constexpr int kLanes = 16;
inline constexpr int64_t kMaxTerms = 4096;       // of one partial sum in the type of the terms; beyond it in double
inline constexpr int64_t kUnitElements = 32768;  // of a unit of parallel_for, for kernels bound by memory: ~10 µs

// The grain for parallel_for whose index stands for `elements` elements.
inline int64_t grain(int64_t elements) { return std::max<int64_t>(1, kUnitElements / std::max<int64_t>(1, elements)); }

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// term(first) + … + term(last - 1) in A.
template <class A, class Term>
A sum_segment(int64_t first, int64_t last, Term&& term) {
  A total = 0;
  int64_t i = first;
  if (last - first >= kLanes) {
    A lanes[kLanes] = {};
    for (; i + kLanes <= last; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
    total = lanes[0];
  }
  for (; i < last; ++i) total += term(i);  // the rest, at most 15
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

// Loops over lanes that compare need more than 16 of them: g++ unrolls up to 16 iterations into branches, and turns
// more into vector instructions.
inline constexpr int kCompareLanes = 32;

// The largest of term(0), …, term(n - 1), or a NaN where there is one. REQUIRES: n >= 1.
template <class A, class Term>
A max_lanes(int64_t n, Term&& term) {
  const auto larger = [](A a, A b) { return (b > a) | (b != b) ? b : a; };
  A largest = term(0);
  int64_t i = 0;
  if (n >= kCompareLanes) {
    A lanes[kCompareLanes];
    for (int lane = 0; lane < kCompareLanes; ++lane) lanes[lane] = term(lane);
    for (i = kCompareLanes; i + kCompareLanes <= n; i += kCompareLanes)
      for (int lane = 0; lane < kCompareLanes; ++lane) lanes[lane] = larger(lanes[lane], term(i + lane));
    for (int lane = 0; lane < kCompareLanes; ++lane) largest = larger(largest, lanes[lane]);
  }
  for (; i < n; ++i) largest = larger(largest, term(i));
  return largest;
}

}  // namespace ringgrad::cpu
