// Conversions of numbers and sums of integers. They give the same result on every processor and are
// never undefined.
#pragma once

#include <cstdint>
#include <type_traits>

// Kernels call such functions, too.
#ifdef __CUDACC__
#define RINGGRAD_HOST_DEVICE __host__ __device__
#else
#define RINGGRAD_HOST_DEVICE
#endif

namespace ringgrad {

// Converts a number to an integer type A. The fraction is dropped. Values outside int64 become the
// nearest int64, and NaN becomes 0. The result keeps the int64's lowest bits, so a negative value
// wraps if A is unsigned.
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

// Converts a number to any type A.
template <class A, class F>
A number(F value) {
  if constexpr (std::is_integral_v<A> && !std::is_same_v<A, bool>)
    return integer<A>(value);
  else
    return static_cast<A>(value);
}

// The type in which numbers of type A are added, subtracted and multiplied. Integers use an
// unsigned type, so that results that do not fit wrap.
template <class A>
using Wrapping = typename std::conditional_t<std::is_integral_v<A>, std::make_unsigned<A>,
                                             std::type_identity<A>>::type;

}  // namespace ringgrad
