// Numbers as other types, and sums of integers: the same on every processor, and never undefined.
#pragma once

#include <cstdint>
#include <type_traits>

// For functions that kernels call, too.
#ifdef __CUDACC__
#define RINGGRAD_HOST_DEVICE __host__ __device__
#else
#define RINGGRAD_HOST_DEVICE
#endif

namespace ringgrad {

// A number as an integer of type A. It loses its fraction; beyond int64 it is int64's nearest, and
// of that A keeps the lowest bits, so that a negative one wraps where there is no sign; NaN is 0.
template <class A, class F>
RINGGRAD_HOST_DEVICE A integer(F value) {
  if constexpr (std::is_floating_point_v<F>) {
    constexpr F kEnd = 9223372036854775808.0;
    const bool fits = value >= -kEnd && value < kEnd;
    const auto whole = static_cast<int64_t>(fits ? value : F(0));
    return static_cast<A>(value >= kEnd ? INT64_MAX : value < -kEnd ? INT64_MIN : whole);
  } else {
    return static_cast<A>(value);
  }
}

// A number as an A, whatever A is.
template <class A, class F>
A number(F value) {
  if constexpr (std::is_integral_v<A> && !std::is_same_v<A, bool>)
    return integer<A>(value);
  else
    return static_cast<A>(value);
}

// The type to add, subtract and multiply numbers of type A in: integers that do not fit wrap.
template <class A>
using Wrapping = typename std::conditional_t<std::is_integral_v<A>, std::make_unsigned<A>,
                                             std::type_identity<A>>::type;

}  // namespace ringgrad
