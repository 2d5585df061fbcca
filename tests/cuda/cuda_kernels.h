// Helpers of the tests of CUDA kernels: tensors on the device, and the same values in double on the
// host.
#pragma once

#include "ringgrad/tests/cuda/cuda_util.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test {

// Returns the same view (strides, offset, layout) of a copy of the host tensor's storage.
inline Tensor to_device(const Tensor& host, Device device = Device(DeviceType::CUDA)) {
  if (!host.defined()) return host;
  const auto bytes = static_cast<int64_t>(host.storage()->nbytes());
  auto storage = std::make_shared<Storage>(host.storage()->nbytes(), device);
  copy_(Tensor(storage, {bytes}, {1}, 0, DType::UInt8),
        Tensor(host.storage(), {bytes}, {1}, 0, DType::UInt8));
  return Tensor(storage, host.shape(), host.strides(), host.storage_offset(), host.dtype(),
                host.is_channel_blocked());
}
inline Tensor empty_on_device(const Shape& shape, DType dtype) {
  return empty(shape, {.dtype = dtype, .device = Device(DeviceType::CUDA)});
}

// Returns a contiguous copy in float64; an undefined tensor gives an undefined one.
inline Tensor in_double(const Tensor& x) {
  if (!x) return x;
  const Tensor y = empty(x.shape(), {.dtype = DType::Float64});
  kernels::copy(y, x);
  return y;
}

}  // namespace ringgrad::test
