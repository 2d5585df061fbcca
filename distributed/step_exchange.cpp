#include "distributed/step_exchange.h"

#include <cmath>

#include "core/check.h"
#include "core/factory.h"
#include "core/kernels.h"

namespace ringgrad {
namespace {

// f(array, numel) with the buffer's elements in their own type; the buffer is contiguous.
template <class F>
void visit_elements(const Tensor& buffer, F&& f) {
  if (buffer.dtype() == DType::Int64) return f(buffer.data<int64_t>(), buffer.numel());
  visit_floating("step_exchange", buffer.dtype(), [&]<class T>() { f(buffer.data<T>(), buffer.numel()); });
}

}  // namespace

StepExchange::StepExchange(ProcessGroup& group, std::vector<Tensor> buffers)
    : group_(group), buffers_(std::move(buffers)) {
  int64_t numel = 2, device_numel = 0;
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

StepExchange::Sum StepExchange::run(double samples, bool flag, const CollectiveOptions& options) {
  auto* packed = packed_.data<double>();
  packed[0] = samples;
  packed[1] = flag;
  double* next = packed + 2;
  for (const Tensor& buffer : buffers_) {
    if (buffer.device().is_cuda()) continue;
    visit_elements(buffer, [&]<class T>(const T* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) next[i] = samples * static_cast<double>(static_cast<Accumulator<T>>(x[i]));
      next += n;
    });
  }
  visit_on_device([&](const Tensor& buffer, const Tensor& packed_part) {
    kernels::copy(packed_part, buffer);
    kernels::affine(packed_part, packed_part, samples, 0);
  });
  // The device's first: it goes on while the host's numbers travel.
  if (device_packed_) group_.all_reduce(device_packed_, ReduceOp::Sum, options).wait();
  group_.all_reduce(packed_, ReduceOp::Sum, options).wait();

  const Sum sum{packed[0], packed[1] > 0};
  if (sum.samples <= 0) return sum;
  visit_on_device([&](const Tensor& buffer, const Tensor& packed_part) {
    const double rounding = is_floating(buffer.dtype()) ? 0 : 0.5;  // of counters, by cutting off
    kernels::affine(packed_part, packed_part, 1 / sum.samples, rounding);
    kernels::copy(buffer, packed_part);
    buffer.storage()->bump_version();
  });
  next = packed + 2;
  for (const Tensor& buffer : buffers_) {
    if (buffer.device().is_cuda()) continue;
    visit_elements(buffer, [&]<class T>(T* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const double mean = next[i] / sum.samples;
        if constexpr (std::is_integral_v<T>)
          x[i] = std::llround(mean);
        else
          x[i] = static_cast<T>(static_cast<Accumulator<T>>(mean));
      }
      next += n;
    });
    buffer.storage()->bump_version();
  }
  return sum;
}

}  // namespace ringgrad
