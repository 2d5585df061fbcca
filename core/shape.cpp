#include "ringgrad/core/shape.h"

#include <algorithm>
#include <ostream>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

Shape::Shape(std::initializer_list<Int64> sizes) {
  for (const int64_t size : sizes) push_back(size);
}

Shape::Shape(std::span<const int64_t> sizes) {
  CHECK_AS(ShapeError, sizes.size() <= kMaxDims, "shape: ", sizes.size(), " dimensions, at most ",
           kMaxDims, " are supported");
  std::ranges::copy(sizes, sizes_.begin());
  dim_ = static_cast<int>(sizes.size());
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t size : *this) n *= size;
  return n;
}

int64_t count_elements(const char* operation, const Shape& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    CHECK_AS(ShapeError, size >= 0, operation, ": shape ", shape, " has a negative size");
    CHECK_AS(ShapeError,
             !__builtin_mul_overflow(elements, size, &elements) && elements < (int64_t{1} << 56),
             operation, ": shape ", shape, " has too many elements");
  }
  return elements;
}

void Shape::push_back(int64_t size) { insert(dim_, size); }

void Shape::insert(int d, int64_t size) {
  CHECK_AS(ShapeError, dim_ < kMaxDims, "shape: more than ", kMaxDims,
           " dimensions are not supported");
  std::copy_backward(begin() + d, end(), end() + 1);
  sizes_[d] = size;
  ++dim_;
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(*this, other); }

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '[';
  for (int d = 0; d < shape.dim(); ++d) out << (d ? ", " : "") << std::to_string(shape[d]);
  return out << ']';
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = shape;
  uint64_t step = 1;  // may wrap if there are no elements: [0, 2^62, 4]
  for (int d = shape.dim() - 1; d >= 0; --d) {
    strides[d] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(std::max<int64_t>(shape[d], 1));
  }
  return strides;
}

Strides channels_last_strides(const Shape& nchw) {
  ASSERT(nchw.dim() == 4);
  const int64_t c = nchw[1];
  const int64_t h = nchw[2];
  const int64_t w = nchw[3];
  return {h * w * c, 1, w * c, c};
}

DimOrder memory_order(const Shape& shape, const Strides& strides) {
  DimOrder order;  // insertion sort keeps equal strides in their order
  for (int d = 0; d < shape.dim(); ++d) {
    if (shape[d] == 1) continue;
    int at = order.count++;
    for (; at > 0 && strides[order.dim[at - 1]] < strides[d]; --at)
      order.dim[at] = order.dim[at - 1];
    order.dim[at] = d;
  }
  return order;
}

int normalize_dim(const char* operation, int d, int dim) {
  CHECK_AS(IndexError, d >= -dim && d < dim, operation, ": dimension ", d,
           " is out of range for a tensor of ", dim, " dimensions, expected ", -dim, " to ",
           dim - 1);
  return d < 0 ? d + dim : d;
}

}  // namespace ringgrad
