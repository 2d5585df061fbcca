// Shapes and strides: small arrays of int64 without heap memory, and the rules for broadcasting and
// dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <vector>

#include "ringgrad/core/base/only.h"

namespace ringgrad {

inline constexpr int kMaxDims = 8;

// The sizes of a tensor's dimensions, outermost first. The same class holds strides, counted in
// elements. It prints as [2, 3].
class Shape {
 public:
  Shape() = default;  // no dimensions: one element
  Shape(std::initializer_list<Int64> sizes);
  Shape(const std::vector<int64_t>& sizes) : Shape(std::span<const int64_t>(sizes)) {}
  explicit Shape(std::span<const int64_t> sizes);  // throws ShapeError above kMaxDims dimensions

  int dim() const { return dim_; }
  int64_t operator[](int d) const { return sizes_[d]; }
  int64_t& operator[](int d) { return sizes_[d]; }
  int64_t back() const { return sizes_[dim_ - 1]; }
  int64_t numel() const;

  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + dim_; }
  int64_t* begin() { return sizes_.data(); }
  int64_t* end() { return sizes_.data() + dim_; }

  void push_back(int64_t size);
  void insert(int d, int64_t size);  // before dimension d
  void erase(int d);
  bool operator==(const Shape& other) const;

 private:
  std::array<int64_t, kMaxDims> sizes_{};
  int dim_ = 0;
};
using Strides = Shape;

std::ostream& operator<<(std::ostream& out, const Shape& shape);

// A list of dimensions: one in sum(x, 1), several in sum(x, {0, 2}). Negative numbers count from
// the end.
struct Dims : std::vector<int> {
  Dims() = default;
  template <class A>
  requires kIsOfKind<A, int> Dims(A d) : Dims({Int(d)}) {}
  Dims(Int d) : vector{d} {}
  Dims(std::initializer_list<Int> dims) : vector(dims.begin(), dims.end()) {}
  Dims(const std::vector<int>& dims) : vector(dims) {}
};

// Returns the number of elements, which a mistaken or hostile shape makes wrap in numel(). Throws
// ShapeError in the name of `operation` if a size is negative or they are 2^56 or more.
int64_t count_elements(const char* operation, const Shape& shape);

Strides contiguous_strides(const Shape& shape);    // row-major: the last dimension has stride 1
Strides channels_last_strides(const Shape& nchw);  // for a 4-D NCHW shape stored as NHWC

// Returns the common shape of an elementwise operation by NumPy's rule: shapes are aligned right,
// and sizes agree or one of them is 1. Throws ShapeError in the name of `operation`.
Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b);

// The dimensions whose size is not 1, by falling stride; equal strides keep their order. Walking
// them in this order visits the elements in the order of memory.
struct DimOrder {
  int count = 0;
  std::array<int, kMaxDims> dim{};
};
DimOrder memory_order(const Shape& shape, const Strides& strides);

// Maps d in [-dim, dim) to [0, dim). Throws IndexError in the name of `operation`.
int normalize_dim(const char* operation, int d, int dim);

}  // namespace ringgrad
