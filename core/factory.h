// Creates tensors. None of these is part of the autograd graph; mark a leaf with
// set_requires_grad().
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// The elements are uninitialised. Throws ShapeError if a size is negative or if an image layout is
// given for other than 4 dimensions, DeviceError, OutOfMemoryError.
Tensor empty(const Shape& shape, TensorOptions options = {});
// Takes shape, dtype and device from x, and also the order in memory if x is dense.
Tensor empty_like(const Tensor& x);
Tensor empty_like(const Tensor& x, DType dtype);

Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor scalar(Scalar value, TensorOptions options = {});  // shape []

Tensor full_like(const Tensor& x, Scalar value);
// Copies host values in row-major order. Throws ShapeError unless there are shape.numel() values.
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device = {});
template <class T>
Tensor tensor(const std::vector<T>& values, Device device = {}) {  // 1-D
  return tensor(values, Shape{static_cast<int64_t>(values.size())}, device);
}

// Returns the elements on the host, in row-major order, converted to T. Waits for the device.
// Throws DTypeError if T is an integer type and an element, without its fraction, exceeds its
// range.
template <class T>
std::vector<T> to_vector(const Tensor& x);

// Writes in place, without history; see begin_write() in core/tensor.h.
void fill_(const Tensor& x, Scalar value);
// The shapes are equal. The tensors do not overlap, unless each element lies exactly on its
// counterpart. Converts the dtype, crosses devices and reorders elements. A copy to the host is
// complete on return.
void copy_(const Tensor& destination, const Tensor& source);

// Returns a contiguous copy with another dtype, device or layout, without history.
Tensor copy_of(const Tensor& x, TensorOptions options);

// Returns x if it is on the device, and otherwise a copy there, without history.
Tensor on_device(const Tensor& x, Device device);

// Returns x if it is contiguous and strided, and otherwise such a copy, without history.
Tensor as_contiguous(const Tensor& x);

// Returns x if it has the dtype or is undefined, and otherwise a contiguous copy, without history.
Tensor in_dtype(const Tensor& x, DType dtype);

}  // namespace ringgrad
