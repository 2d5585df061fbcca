// Numbers that kernels need and that std::numeric_limits may not give them: its functions belong to the host.
#pragma once

#include <cmath>
#include <limits>

namespace ringgrad::cuda {

template <class A>
inline constexpr A kInfinity = std::numeric_limits<A>::infinity();
template <class A>
inline constexpr A kNaN = std::numeric_limits<A>::quiet_NaN();

}  // namespace ringgrad::cuda
