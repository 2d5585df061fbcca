// Reads and writes the elements of a tensor as plain numbers, whatever its dtype and layout. All
// reference kernels use it. Numbers are double for floating dtypes, and 64-bit integers for the
// others. So a kernel is written once, its sums are wide, and a result is rounded once, when it is
// stored.
//
// Nothing here is fast: each access computes an address and looks up the dtype.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/kernels/classifier_kernels.h"

// Registers a function with a kernel's name as that kernel's reference.
#define REFERENCE(kernel) REGISTER_KERNEL(kernel, CPU, Reference, kernel)

namespace ringgrad::reference {

// x(n, c, h, w) reads an element of a tensor x as an A. x(n, c, h, w) = value converts the value to
// x's dtype and writes it. A Shape may serve as the index, too. REQUIRES: as many numbers as the
// tensor has dimensions, each in its range.
template <class A>
class Elements {
 public:
  class Element {
   public:
    Element(DType dtype, std::byte* place) : dtype_(dtype), place_(place) {}
    operator A() const {
      return visit_dtype("read", dtype_, [this]<class T>() {
        return static_cast<A>(*reinterpret_cast<T*>(place_));
      });
    }
    void operator=(A value) const {
      visit_dtype("write", dtype_, [this, value]<class T>() {
        if constexpr (std::is_same_v<T, bool>)
          *reinterpret_cast<T*>(place_) = value != 0;
        else
          *reinterpret_cast<T*>(place_) = number<T>(value);
      });
    }
    void operator=(const Element& other) const { *this = A{other}; }
    void operator+=(A value) const { *this = *this + value; }

   private:
    DType dtype_;
    std::byte* place_;
  };

  // An undefined tensor has no elements; only value_or() may be called then.
  explicit Elements(const Tensor& x) {
    if (!x.defined()) return;
    data_ = static_cast<std::byte*>(x.raw_data());
    dtype_ = x.dtype();
    itemsize_ = static_cast<int64_t>(itemsize(dtype_));
    blocked_ = x.is_channel_blocked();
    shape_ = x.shape();
    if (!blocked_) strides_ = x.strides();
  }
  explicit operator bool() const { return data_ != nullptr; }
  const Shape& shape() const { return shape_; }

  template <std::integral... Index>
  Element operator()(Index... index) const {
    const std::array<int64_t, kMaxDims> at = {static_cast<int64_t>(index)...};
    return element(at.data(), static_cast<int>(sizeof...(Index)));
  }
  Element operator()(const Shape& index) const { return element(index.begin(), index.dim()); }
  template <class... Index>
  A value_or(A otherwise, const Index&... index) const {
    return data_ ? A{(*this)(index...)} : otherwise;
  }

 private:
  Element element(const int64_t* at, int dim) const {
    int64_t offset = 0;
    if (blocked_) {  // [N, ⌈C/16⌉, H, W, 16]
      const int64_t blocks = (shape_[1] + kChannelBlock - 1) / kChannelBlock;
      const int64_t block = at[0] * blocks + at[1] / kChannelBlock;
      offset =
          ((block * shape_[2] + at[2]) * shape_[3] + at[3]) * kChannelBlock + at[1] % kChannelBlock;
    } else {
      for (int d = 0; d < dim; ++d) offset += at[d] * strides_[d];
    }
    return Element(dtype_, data_ + offset * itemsize_);
  }

  std::byte* data_ = nullptr;
  DType dtype_ = DType::Float32;
  int64_t itemsize_ = 0;
  bool blocked_ = false;
  Shape shape_;
  Strides strides_;
};

// Calls body(index) for every index of a shape, the last dimension fastest.
template <class Body>
void for_each_index(const Shape& shape, const Body& body) {
  Shape index = shape;
  std::ranges::fill(index, 0);
  for (int64_t left = shape.numel(); left > 0; --left) {
    body(std::as_const(index));
    for (int d = shape.dim() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

// A result of a kernel. If the layout has blocks, the channels beyond the last in its last block
// are set to 0.
template <class A>
class Results : public Elements<A> {
 public:
  explicit Results(const Tensor& y) : Elements<A>(y) {
    if (!y.defined() || !y.is_channel_blocked()) return;
    const Shape& s = y.shape();
    const int64_t end = (s[1] + kChannelBlock - 1) / kChannelBlock * kChannelBlock;
    for_each_index({s[0], end - s[1], s[2], s[3]},
                   [&](const Shape& i) { (*this)(i[0], s[1] + i[1], i[2], i[3]) = 0; });
  }
};

// Wide sums that begin with 0: sums(n, c) += value.
class Sums {
 public:
  explicit Sums(const Shape& shape) : strides_(contiguous_strides(shape)), values_(shape.numel()) {}

  template <std::integral... Index>
  double& operator()(Index... index) {
    const std::array<int64_t, kMaxDims> at = {static_cast<int64_t>(index)...};
    return values_[std::inner_product(strides_.begin(), strides_.end(), at.begin(), int64_t{0})];
  }
  double& operator()(const Shape& index) {
    return values_[std::inner_product(strides_.begin(), strides_.end(), index.begin(), int64_t{0})];
  }

 private:
  Strides strides_;
  std::vector<double> values_;
};

// Calls body(index in x) for each element of x that is summed into the element at index `at` of y.
// The summed dimensions of y have size 1.
template <class Body>
void for_each_meeting(const Shape& at, const Shape& y, const Shape& x, const Body& body) {
  Shape summed = x;
  for (int d = 0; d < x.dim(); ++d)
    if (y[d] == x[d]) summed[d] = 1;
  for_each_index(summed, [&](Shape index) {
    for (int d = 0; d < x.dim(); ++d) index[d] += at[d];
    body(index);
  });
}

// Returns the elements of x in row-major order.
inline std::vector<double> wide(const Tensor& x) {
  const Elements<double> elements(x);
  std::vector<double> all;
  all.reserve(static_cast<size_t>(x.numel()));
  for_each_index(x.shape(), [&](const Shape& i) { all.push_back(elements(i)); });
  return all;
}
// y[i] = finish(value, i), with the values in row-major order.
template <class Finish>
void store(const Tensor& y, const std::vector<double>& values, const Finish& finish) {
  const Results<double> to(y);
  size_t place = 0;
  for_each_index(y.shape(), [&](const Shape& i) { to(i) = finish(values[place++], i); });
}

// Calls body.operator()<A>() with the type in which elements of `dtype` are computed: double, or
// Integer.
template <class Integer, class Body>
void with_numbers(DType dtype, const Body& body) {
  if (is_floating(dtype))
    body.template operator()<double>();
  else
    body.template operator()<Integer>();
}

// y[i] = f(x[i]…) for every index i. y and x have the same shape.
template <class Integer = int64_t, class F, class First, class... Rest>
void map(const Tensor& y, const F& f, const First& first, const Rest&... rest) {
  with_numbers<Integer>(first.dtype(), [&]<class A>() {
    const auto loop = [&](const auto& to, const auto&... from) {
      for_each_index(y.shape(), [&](const Shape& i) { to(i) = f(A{from(i)}...); });
    };
    loop(Results<A>(y), Elements<A>(first), Elements<A>(rest)...);
  });
}

// map_numbers accepts all numbers, of which integers wrap; map_floating accepts floating dtypes
// only. Both throw DTypeError in the name of `operation` for other dtypes.
template <class F, class First, class... Rest>
void map_numbers(const char* operation, const Tensor& y, const F& f, const First& first,
                 const Rest&... rest) {
  if (first.dtype() == DType::Bool) throw_unsupported_dtype(operation, first.dtype(), "a number");
  map<uint64_t>(y, f, first, rest...);
}
template <class F, class First, class... Rest>
void map_floating(const char* operation, const Tensor& y, const F& f, const First& first,
                  const Rest&... rest) {
  if (!is_floating(first.dtype()))
    throw_unsupported_dtype(operation, first.dtype(), "a floating dtype");
  map(y, f, first, rest...);
}

// Returns all elements of a contiguous tensor as one dimension.
inline Tensor flat(const Tensor& x) {
  return x.defined() ? x.as_strided({x.numel()}, {1}, x.storage_offset()) : x;
}

}  // namespace ringgrad::reference
