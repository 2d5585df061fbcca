// The arithmetic of collectives, element by element, and the choice of functions for a dtype and an
// operation.
#pragma once

#include <functional>
#include <type_traits>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/kernels/reduction.h"

namespace ringgrad::cpu {

struct Sum {
  template <class A>
  A operator()(A a, A b) const {
    return static_cast<A>(static_cast<Wrapping<A>>(a) + static_cast<Wrapping<A>>(b));
  }
};
struct Average : Sum {};
struct Product {
  template <class A>
  A operator()(A a, A b) const {
    return static_cast<A>(static_cast<Wrapping<A>>(a) * static_cast<Wrapping<A>>(b));
  }
};
// Returns NaN if either is NaN: a by the test, and b because no comparison with it holds.
struct Min {
  template <class A>
  A operator()(A a, A b) const {
    return a < b || a != a ? a : b;
  }
};
struct Max {
  template <class A>
  A operator()(A a, A b) const {
    return a > b || a != a ? a : b;
  }
};

template <class A>
A scale_for(int ranks) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(ranks);
  else
    return A(1) / static_cast<A>(ranks);
}

// An average is scaled at the end.
template <class Op, class A>
A finished(A value, A scale) {
  if constexpr (!std::is_same_v<Op, Average>)
    return value;
  else if constexpr (std::is_integral_v<A>)
    return value / scale;
  else
    return value * scale;
}

template <class T, class Op, class Incoming>
void combine(void* wide_, const void* own_, const void* incoming_, size_t n) {
  using A = Accumulator<T>;
  A* wide = static_cast<A*>(wide_);
  const T* own = static_cast<const T*>(own_);
  const Incoming* incoming = static_cast<const Incoming*>(incoming_);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i)
    wide[i] = Op()(static_cast<A>(own[i]), static_cast<A>(incoming[i]));
}

template <class T, class Op>
void finish(void* result_, const void* wide_, size_t n, int ranks) {
  using A = Accumulator<T>;
  if constexpr (std::is_same_v<T, A> && !std::is_same_v<Op, Average>)
    if (result_ == wide_) return;
  T* result = static_cast<T*>(result_);
  const A* wide = static_cast<const A*>(wide_);
  const A scale = scale_for<A>(ranks);
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) result[i] = static_cast<T>(finished<Op>(wide[i], scale));
}

// Returns &Functions<T, Op>::value for the operation, or nullptr if T has no such.
template <class T, template <class, class> class Functions>
const ReduceFunctions* for_op(ReduceOp op) {
  constexpr bool bits = std::is_integral_v<T>;
  constexpr bool averages = !bits || std::is_same_v<T, int64_t>;
  switch (op) {
    case ReduceOp::Sum: return &Functions<T, Sum>::value;
    case ReduceOp::Min: return &Functions<T, Min>::value;
    case ReduceOp::Max: return &Functions<T, Max>::value;
    case ReduceOp::Product: return &Functions<T, Product>::value;
    default: break;
  }
  if constexpr (averages)
    if (op == ReduceOp::Average) return &Functions<T, Average>::value;
  if constexpr (bits) {
    if (op == ReduceOp::BitAnd) return &Functions<T, std::bit_and<>>::value;
    if (op == ReduceOp::BitOr) return &Functions<T, std::bit_or<>>::value;
    if (op == ReduceOp::BitXor) return &Functions<T, std::bit_xor<>>::value;
  }
  return nullptr;
}

// The same for any dtype.
template <template <class, class> class Functions>
const ReduceFunctions* find(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::Int64: return for_op<int64_t, Functions>(op);
    case DType::Int32: return for_op<int32_t, Functions>(op);
    case DType::UInt8: return for_op<uint8_t, Functions>(op);
    case DType::Bool: return for_op<uint8_t, Functions>(on_bool(op));
    default:
      return visit_floating(
          "", dtype, [&]<class T>() -> const ReduceFunctions* { return for_op<T, Functions>(op); });
  }
}

}  // namespace ringgrad::cpu
