// The arithmetic of all-reduce and similar collectives, which core/kernels/reduction.h describes.
#include "ringgrad/core/kernels/reduction.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/number.h"

namespace ringgrad::cpu {
namespace {

constexpr size_t kBlock = 1024;  // partial results of one block stay in the first-level cache

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
constexpr ReduceFunctions kReduction = {sizeof(T),
                                        sizeof(Accumulator<T>),
                                        combine<T, Op, T>,
                                        combine<T, Op, Accumulator<T>>,
                                        finish<T, Op>,
                                        combine_all<T, Op>,
                                        &kReduction<Accumulator<T>, Summing<Op>>,
                                        reduce_all<T, Op>};

// Returns nullptr if T has no such operation.
template <class T>
const ReduceFunctions* for_op(ReduceOp op) {
  constexpr bool bits = std::is_integral_v<T>;
  constexpr bool averages = !bits || std::is_same_v<T, int64_t>;
  switch (op) {
    case ReduceOp::Sum: return &kReduction<T, Sum>;
    case ReduceOp::Min: return &kReduction<T, Min>;
    case ReduceOp::Max: return &kReduction<T, Max>;
    case ReduceOp::Product: return &kReduction<T, Product>;
    default: break;
  }
  if constexpr (averages)
    if (op == ReduceOp::Average) return &kReduction<T, Average>;
  if constexpr (bits) {
    if (op == ReduceOp::BitAnd) return &kReduction<T, std::bit_and<>>;
    if (op == ReduceOp::BitOr) return &kReduction<T, std::bit_or<>>;
    if (op == ReduceOp::BitXor) return &kReduction<T, std::bit_xor<>>;
  }
  return nullptr;
}

const ReduceFunctions* find(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::Int64: return for_op<int64_t>(op);
    case DType::Int32: return for_op<int32_t>(op);
    case DType::UInt8: return for_op<uint8_t>(op);
    case DType::Bool: return for_op<uint8_t>(on_bool(op));
    default:
      return visit_floating("", dtype,
                            [&]<class T>() -> const ReduceFunctions* { return for_op<T>(op); });
  }
}

BEFORE_MAIN(reductions, register_reductions(find));

}  // namespace
}  // namespace ringgrad::cpu
