#include "ringgrad/distributed/ddp/step_exchange.h"

#include <cstring>
#include <span>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

constexpr int64_t kNumbers = sizeof(StepNumbers) / sizeof(double);

}  // namespace

StepExchange::StepExchange(ProcessGroup& group, std::vector<Tensor> buffers)
    : group_(group), buffers_(std::move(buffers)) {
  int64_t numel = kNumbers, device_numel = 0;
  for (const Tensor& buffer : buffers_) {
    CHECK_AS(DeviceError, group_.reaches(buffer.device()) && buffer.is_contiguous(),
             "step_exchange: a buffer of shape ", buffer.shape(), " on ", buffer.device(),
             " cannot be averaged, expected a contiguous one on a device of ", group_.backend());
    (buffer.device().is_cpu() ? numel : device_numel) += buffer.numel();
    if (buffer.device().is_cuda()) device_packed_ = empty({device_numel}, {DType::Float64, buffer.device()});
  }
  const auto bytes = static_cast<size_t>(numel) * sizeof(double);
  packed_ = Tensor(group_.allocate_shared(bytes), {numel}, {1}, 0, DType::Float64);
}

template <class F>
void StepExchange::visit_on_device(F&& f) {
  int64_t offset = 0;
  for (const Tensor& buffer : buffers_) {
    if (buffer.device().is_cpu()) continue;
    f(buffer, device_packed_.as_strided(buffer.shape(), contiguous_strides(buffer.shape()), offset));
    offset += buffer.numel();
  }
}

// What this rank's part of a buffer counts in the sum: nothing where it has seen no samples, whatever stands there (0 ·
// infinity is no zero).
double StepExchange::weight_of(const Tensor& buffer, double samples) const {
  if (is_floating(buffer.dtype())) return samples;
  return group_.rank() == 0 ? 1 : 0;
}

StepNumbers StepExchange::run(const StepNumbers& own, const CollectiveOptions& options) {
  auto* packed = packed_.data<double>();
  std::memcpy(packed, &own, sizeof own);
  double* next = packed + kNumbers;
  for (const Tensor& buffer : buffers_) {
    if (buffer.device().is_cuda()) continue;
    const double weight = weight_of(buffer, own.samples);
    visit_dtype("step_exchange", buffer.dtype(), [&]<class T>() {
      for (const T x : std::span(buffer.data<T>(), static_cast<size_t>(buffer.numel())))
        *next++ = weight == 0 ? 0 : weight * static_cast<double>(x);
    });
  }
  visit_on_device([&](const Tensor& buffer, const Tensor& packed_part) {
    const double weight = weight_of(buffer, own.samples);
    if (weight == 0) return kernels::fill(packed_part, 0);
    kernels::copy(packed_part, buffer);
    kernels::affine(packed_part, packed_part, weight, 0);
  });
  // The device's first: it goes on while the host's numbers travel.
  if (device_packed_) group_.all_reduce(device_packed_, ReduceOp::Sum, options).wait();
  group_.all_reduce(packed_, ReduceOp::Sum, options).wait();

  StepNumbers sum;
  std::memcpy(&sum, packed, sizeof sum);
  if (sum.samples <= 0) {
    for (const Tensor& buffer : buffers_) group_.broadcast(buffer, 0, options).wait();
    return sum;
  }
  const auto weights_of = [&](const Tensor& buffer) { return is_floating(buffer.dtype()) ? sum.samples : 1; };
  visit_on_device([&](const Tensor& buffer, const Tensor& packed_part) {
    kernels::affine(packed_part, packed_part, 1 / weights_of(buffer), 0);
    copy_(buffer, packed_part);
  });
  next = packed + kNumbers;
  for (const Tensor& buffer : buffers_) {
    if (buffer.device().is_cuda()) continue;
    const double weights = weights_of(buffer);
    begin_write("step_exchange", buffer);
    visit_dtype("step_exchange", buffer.dtype(), [&]<class T>() {
      for (T& x : std::span(buffer.data<T>(), static_cast<size_t>(buffer.numel())))
        x = static_cast<T>(*next++ / weights);
    });
  }
  return sum;
}

}  // namespace ringgrad
