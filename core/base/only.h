// Parameter types that accept only arguments of their own kind. C++ would silently convert a bool
// to a dimension, a number to a flag, a character to a number and a fraction to a count:
// x.sum(false), sort(x, 0, -1), x.topk(2.5). With these types such calls do not compile. An integer
// that is too large for its parameter throws when it is passed.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

namespace ringgrad {

// True for character types, which are not numbers although C++ computes with them.
template <class A>
inline constexpr bool kIsLetter =
    std::is_same_v<A, char> || std::is_same_v<A, wchar_t> || std::is_same_v<A, char8_t> ||
    std::is_same_v<A, char16_t> || std::is_same_v<A, char32_t>;
template <class A>
inline constexpr bool kIsNumber =
    std::is_arithmetic_v<A> && !kIsLetter<A> && !std::is_same_v<A, bool>;

// True if an argument of type A may be passed for a T: bool for bool, integers for integers, and
// any number for a floating type.
template <class A, class T>
inline constexpr bool kIsOfKind = std::is_same_v<T, bool>
                                      ? std::is_same_v<A, bool>
                                      : kIsNumber<A> &&
                                            (std::is_integral_v<A> || std::is_floating_point_v<T>);

template <class T>
class Only;
template <class A>
inline constexpr bool kIsOnly = false;
template <class T>
inline constexpr bool kIsOnly<Only<T>> = true;

// True for a class that converts to T because its author chose so, such as a JSON value or an
// atomic number.
template <class A, class T>
inline constexpr bool kStandsFor =
    std::is_class_v<A> && !kIsOnly<A> && std::is_convertible_v<const A&, T>;

[[noreturn]] void throw_out_of_range(const std::string& number, size_t bytes);  // throws IndexError

template <class T>
class Only {
 public:
  template <class A>
  requires kStandsFor<A, T>
  constexpr Only(const A& value) : value_(value) {}
  template <class A>
  requires kIsOfKind<A, T>
  constexpr Only(A value) : value_(static_cast<T>(value)) {
    if constexpr (std::is_integral_v<T> && kIsNumber<T>)
      if (!std::in_range<T>(value)) throw_out_of_range(std::to_string(value), sizeof(T));
  }
  constexpr operator T() const { return value_; }
  friend std::ostream& operator<<(std::ostream& out, Only only) { return out << only.value_; }

 private:
  T value_;
};

using Flag = Only<bool>;
using Int = Only<int>;
using Int64 = Only<int64_t>;
using Real = Only<double>;

}  // namespace ringgrad
