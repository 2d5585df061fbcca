// A number given as a double, as the type that a kernel computes in.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ringgrad {

// Where A has no sign a negative one wraps; converted at once, it is undefined, and processors differ.
template <class A>
A number(double value) {
  if constexpr (std::is_integral_v<A> && !std::is_same_v<A, bool>)
    return static_cast<A>(static_cast<int64_t>(value));
  else
    return static_cast<A>(value);
}

}  // namespace ringgrad
