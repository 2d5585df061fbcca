#include "distributed/step_exchange.h"

#include <cmath>

#include "core/check.h"

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
  int64_t numel = 2;
  for (const Tensor& buffer : buffers_) {
    CHECK_AS(DeviceError, buffer.device().is_cpu() && buffer.is_contiguous(), "step_exchange: a buffer of shape ",
             buffer.shape(), " on ", buffer.device(), " cannot be averaged, expected a contiguous one on the CPU");
    numel += buffer.numel();
  }
  const auto bytes = static_cast<size_t>(numel) * sizeof(double);
  packed_ = Tensor(group_.allocate_shared(bytes), {numel}, {1}, 0, DType::Float64);
}

StepExchange::Sum StepExchange::run(double samples, bool flag, const CollectiveOptions& options) {
  auto* packed = packed_.data<double>();
  packed[0] = samples;
  packed[1] = flag;
  double* next = packed + 2;
  for (const Tensor& buffer : buffers_)
    visit_elements(buffer, [&]<class T>(const T* x, int64_t n) {
      for (int64_t i = 0; i < n; ++i) next[i] = samples * static_cast<double>(static_cast<Accumulator<T>>(x[i]));
      next += n;
    });
  group_.all_reduce(packed_, ReduceOp::Sum, options).wait();

  const Sum sum{packed[0], packed[1] > 0};
  if (sum.samples <= 0) return sum;
  next = packed + 2;
  for (const Tensor& buffer : buffers_) {
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
