// New tensors. None of these is part of the autograd graph; mark a leaf with set_requires_grad().
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Uninitialised. Throws ShapeError on a negative size or a layout of images for other than 4 dimensions, DeviceError,
// OutOfMemoryError.
Tensor empty(const Shape& shape, TensorOptions options = {});
Tensor empty_like(const Tensor& x);  // same shape, dtype, device; same order in memory where x is dense
Tensor empty_like(const Tensor& x, DType dtype);

Tensor full(const Shape& shape, double value, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor scalar(double value, TensorOptions options = {});                    // shape []
Tensor arange(int64_t n, TensorOptions options = {.dtype = DType::Int64});  // 0 … n-1

// A copy of host values, row-major; throws ShapeError unless there are shape.numel() of them.
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device = {});
template <class T>
Tensor tensor(const std::vector<T>& values, Device device = {}) {  // 1-D
  return tensor(values, Shape{static_cast<int64_t>(values.size())}, device);
}

// The elements on the host, row-major, converted to T; waits for the device.
template <class T>
std::vector<T> to_vector(const Tensor& x);

// In place, without history; see begin_write() in core/tensor.h. The source may not overlap the destination.
void fill_(const Tensor& x, double value);
// Same shape; converts dtype, crosses devices, reorders. A copy to the host is there on return.
void copy_(const Tensor& destination, const Tensor& source);

// The same elements, contiguous, with another dtype, device or layout; without history.
Tensor copy_of(const Tensor& x, TensorOptions options);

// x itself where it is on the device, else a copy there; without history.
Tensor on_device(const Tensor& x, Device device);

// A contiguous strided copy of x, or x itself where it is one already; without history.
Tensor as_contiguous(const Tensor& x);

// x itself where it has the dtype, or is undefined, else a contiguous copy; without history.
Tensor in_dtype(const Tensor& x, DType dtype);

}  // namespace ringgrad
