// Visits the tensors inside a value. Wrappers of functions that take and return several tensors use
// it. A value may be a Tensor; a tuple, pair, array, vector or optional of values; or a struct of
// up to eight public members. Numbers, enumerations and strings are skipped. Other types do not
// compile, because their tensors would be overlooked.
#pragma once

#include <array>
#include <concepts>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {
namespace detail {

// Never called. It has a body all the same, since clang warns if a T of one source lacks it.
struct AnyValue {
  template <class T>
  operator T() const {
    std::abort();
  }
};
template <class T, size_t... I>
constexpr bool has_members(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyValue())...}; };
}
template <class T, size_t N = 8>
constexpr size_t count_members() {
  if constexpr (N == 0 || has_members<T>(std::make_index_sequence<N>()))
    return N;
  else
    return count_members<T, N - 1>();
}

// Calls f(member, …) with all members of a struct.
template <class T, class F>
void with_members(T& value, const F& f) {
  constexpr size_t n = count_members<std::remove_const_t<T>>();
  static_assert(n > 0 && !has_members<std::remove_const_t<T>>(std::make_index_sequence<9>()),
                "expected a struct of one to eight public members");
  if constexpr (n == 1) {
    auto& [a] = value;
    f(a);
  } else if constexpr (n == 2) {
    auto& [a, b] = value;
    f(a, b);
  } else if constexpr (n == 3) {
    auto& [a, b, c] = value;
    f(a, b, c);
  } else if constexpr (n == 4) {
    auto& [a, b, c, d] = value;
    f(a, b, c, d);
  } else if constexpr (n == 5) {
    auto& [a, b, c, d, e] = value;
    f(a, b, c, d, e);
  } else if constexpr (n == 6) {
    auto& [a, b, c, d, e, g] = value;
    f(a, b, c, d, e, g);
  } else if constexpr (n == 7) {
    auto& [a, b, c, d, e, g, h] = value;
    f(a, b, c, d, e, g, h);
  } else {
    auto& [a, b, c, d, e, g, h, i] = value;
    f(a, b, c, d, e, g, h, i);
  }
}

template <class T>
concept TupleLike = requires {
  std::tuple_size<T>::value;
};
template <class T>
concept HoldsNoTensor =
    std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::string>;
template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

}  // namespace detail

// Calls f(tensor) for each tensor, in order. If `value` is not const, f may assign to it. Undefined
// tensors are visited, too.
template <class T, class F>
void for_each_tensor(T& value, const F& f) {
  using Value = std::remove_const_t<T>;
  const auto each = [&f](auto&... parts) { (for_each_tensor(parts, f), ...); };
  if constexpr (std::derived_from<Value, Tensor>) {
    f(value);
  } else if constexpr (detail::is_optional<Value>) {
    if (value) for_each_tensor(*value, f);
  } else if constexpr (detail::TupleLike<Value>) {
    std::apply(each, value);
  } else if constexpr (requires { value.begin(), value.end(), typename Value::value_type(); } &&
                       !std::same_as<Value, std::string>) {
    for (auto& part : value) for_each_tensor(part, f);
  } else if constexpr (!detail::HoldsNoTensor<Value>) {
    static_assert(std::is_aggregate_v<Value>,
                  "expected tensors, tuples, vectors or structs of them");
    detail::with_members(value, each);
  }
}

}  // namespace ringgrad
