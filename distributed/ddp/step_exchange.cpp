#include "ringgrad/distributed/ddp/step_exchange.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/ddp/buffer_numbers.h"
#include "ringgrad/distributed/group_values.h"

namespace ringgrad {
namespace {

constexpr int64_t kNumbers = sizeof(StepNumbers) / sizeof(double);

}  // namespace

StepExchange::StepExchange(ProcessGroup& group, const std::vector<Tensor>& buffers)
    : group_(group) {
  int64_t numel = kNumbers;
  int64_t device_numel = 0;
  Device device;
  std::vector<int64_t> begins;  // by part
  for (const Tensor& buffer : buffers) {
    const int64_t n = count_of_numbers(buffer);
    if (n == 0) continue;
    int64_t& end = buffer.device().is_cpu() ? numel : device_numel;
    begins.push_back(std::exchange(end, end + n));
    if (!buffer.device().is_cpu()) device = buffer.device();
    parts_.push_back({buffer, {}, {}});
  }
  const auto bytes = static_cast<size_t>(numel) * sizeof(double);
  packed_ = Tensor(group_.allocate_shared(bytes), {numel}, {1}, 0, DType::Float64);
  if (device_numel > 0) device_packed_ = empty({device_numel}, {DType::Float64, device});
  for (size_t i = 0; i < parts_.size(); ++i) {
    auto& [buffer, packed, base] = parts_[i];
    const int64_t n = count_of_numbers(buffer);
    packed = (buffer.device().is_cpu() ? packed_ : device_packed_).as_strided({n}, {1}, begins[i]);
    if (buffer.dtype() == DType::Float64) base = empty({n}, {DType::Float64, buffer.device()});
    has_bases_ |= base.defined();
  }
}

// Takes the base from the first rank with samples, because the buffers of a rank without samples
// mean nothing.
void StepExchange::learn_bases(double samples, const CollectiveOptions& options) {
  const auto of_ranks = all_gather_values<double>(group_, {samples}, options);
  const auto first =
      std::find_if(of_ranks.begin(), of_ranks.end(), [](double count) { return count > 0; });
  if (first == of_ranks.end()) return;
  for (const Part& part : parts_) {
    if (!part.base) continue;
    copy_(part.base, numbers_of(part.buffer));
    group_.broadcast(part.base, static_cast<int>(first - of_ranks.begin()), options).wait();
  }
}

void StepExchange::unpack(const Part& part, double samples) const {
  if (is_floating(part.buffer.dtype()) && part.buffer.dtype() != DType::Float64 &&
      part.buffer.device().is_cpu() && part.buffer.is_contiguous()) {
    const auto* sums = part.packed.data<double>();
    return visit_dtype("step_exchange", part.buffer.dtype(), [&]<class T>() {
      const std::span<T> own(part.buffer.data<T>(), static_cast<size_t>(part.buffer.numel()));
      const auto mean = [=](size_t i) { return static_cast<T>(sums[i] / samples); };
      size_t first = 0;  // that differs; no write if none does, as in take_numbers()
      for (; first < own.size(); ++first)
        if (const T x = mean(first); std::memcmp(&x, &own[first], sizeof x) != 0) break;
      if (first == own.size()) return;
      begin_write("step_exchange", part.buffer);
      for (size_t i = first; i < own.size(); ++i) own[i] = mean(i);
    });
  }
  unpack_buffer(part.buffer, part.packed, part.base, samples);
}

StepNumbers StepExchange::run(const StepNumbers& own, const CollectiveOptions& options) {
  if (has_bases_) learn_bases(own.samples, options);
  auto* packed = packed_.data<double>();
  std::memcpy(packed, &own, sizeof own);
  for (const Part& part : parts_)
    pack_buffer(part.packed, part.buffer, part.base, own.samples, group_.is_main_process());
  // The device's first: it goes on while the host's numbers travel.
  if (device_packed_) group_.all_reduce(device_packed_, ReduceOp::Sum, options).wait();
  group_.all_reduce(packed_, ReduceOp::Sum, options).wait();

  StepNumbers sum;
  std::memcpy(&sum, packed, sizeof sum);
  for (const Part& part : parts_) {
    if (sum.samples > 0)
      unpack(part, sum.samples);
    else
      group_.broadcast(part.buffer, 0, options).wait();
  }
  return sum;
}

}  // namespace ringgrad
