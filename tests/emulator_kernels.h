// What the tests of the CUDA kernels share: tensors on the device, and a comparison with values on the host.
#pragma once

#include "tests/cpu_kernels.h"
#include "tests/emulator_util.h"

namespace ringgrad::test {

// The same view (strides, offset, layout) of a copy of the host tensor's storage.
inline Tensor to_device(const Tensor& host, Device device = Device(DeviceType::CUDA)) {
  if (!host.defined()) return host;
  auto storage = std::make_shared<Storage>(host.storage()->nbytes(), device);
  CUDA_CHECK(cudaMemcpy(storage->data(), host.storage()->data(), storage->nbytes(), cudaMemcpyHostToDevice));
  return Tensor(storage, host.shape(), host.strides(), host.storage_offset(), host.dtype(), host.is_channel_blocked());
}
inline Tensor to_host(const Tensor& x) {
  synchronize(current_stream(x.device()));
  const Tensor flat = empty({static_cast<int64_t>(x.storage()->nbytes())}, {.dtype = DType::UInt8});
  CUDA_CHECK(cudaMemcpy(flat.raw_data(), x.storage()->data(), x.storage()->nbytes(), cudaMemcpyDeviceToHost));
  return Tensor(flat.storage(), x.shape(), x.strides(), x.storage_offset(), x.dtype(), x.is_channel_blocked());
}
inline Tensor empty_on_device(const Shape& shape, DType dtype) {
  return empty(shape, {.dtype = dtype, .device = Device(DeviceType::CUDA)});
}

// A contiguous copy in float64; nothing of nothing.
inline Tensor in_double(const Tensor& x) {
  if (!x) return x;
  const Tensor y = empty(x.shape(), {.dtype = DType::Float64});
  kernels::copy(y, x);
  return y;
}

inline std::vector<double> device_values(const Tensor& x) { return values(to_host(x)); }
inline void require_device_close(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  require_close(to_host(actual), expected, tolerance);
}

}  // namespace ringgrad::test
