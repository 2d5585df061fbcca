// New tensors. None of these is part of the autograd graph; mark a leaf with set_requires_grad().
#pragma once

#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Uninitialised. Throws ShapeError on a negative size or a layout of images for other than 4
// dimensions, DeviceError, OutOfMemoryError.
Tensor empty(const Shape& shape, TensorOptions options = {});
// Same shape, dtype, device; same order in memory where x is dense.
Tensor empty_like(const Tensor& x);
Tensor empty_like(const Tensor& x, DType dtype);

Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor zeros_like(const Tensor& x);
Tensor ones_like(const Tensor& x);
Tensor scalar(Scalar value, TensorOptions options = {});                  // shape []
Tensor arange(Int64 n, TensorOptions options = {.dtype = DType::Int64});  // 0 … n-1

Tensor full_like(const Tensor& x, Scalar value);
// Returns begin, begin + step, … before end. It is int64 if all three are integers, and otherwise
// float32, as in PyTorch.
Tensor arange(Scalar begin, Scalar end, Scalar step, TensorOptions options);
Tensor arange(Scalar begin, Scalar end, Scalar step = 1);
// Includes both ends. Integers from integer ends are exact; their fractions are dropped.
Tensor linspace(Scalar begin, Scalar end, Int64 steps, TensorOptions options = {});
Tensor eye(Int64 rows, Int64 columns, TensorOptions options = {});  // ones on the diagonal
inline Tensor eye(Int64 n, TensorOptions options = {}) { return eye(n, n, options); }
// A view of memory that stays the caller's, contiguous, on the CPU; `release` runs when the last
// handle is gone.
Tensor from_blob(
    void* data, const Shape& shape, DType dtype = DType::Float32,
    std::function<void()> release = [] {});

// A copy of host values, row-major; throws ShapeError unless there are shape.numel() of them.
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

// In place, without history; see begin_write() in core/tensor.h. The source may not overlap the
// destination.
void fill_(const Tensor& x, Scalar value);
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
