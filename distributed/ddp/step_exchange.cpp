#include "ringgrad/distributed/ddp/step_exchange.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/ddp/buffer_numbers.h"

namespace ringgrad {
namespace {

constexpr int64_t kNumbers = sizeof(StepNumbers) / sizeof(double);

}  // namespace

StepExchange::StepExchange(ProcessGroup& group, const std::vector<Tensor>& buffers)
    : group_(group) {
  int64_t numel = kNumbers;
  int64_t device_numel = 0;
  Device device;
  for (const Tensor& buffer : buffers) {
    (buffer.device().is_cpu() ? numel : device_numel) += count_of_numbers(buffer);
    if (!buffer.device().is_cpu()) device = buffer.device();
  }
  const auto bytes = static_cast<size_t>(numel) * sizeof(double);
  packed_ = Tensor(group_.allocate_shared(bytes), {numel}, {1}, 0, DType::Float64);
  if (device_numel > 0) device_packed_ = empty({device_numel}, {DType::Float64, device});

  int64_t next = kNumbers;
  int64_t device_next = 0;
  for (const Tensor& buffer : buffers) {
    const bool on_host = buffer.device().is_cpu();
    const int64_t n = count_of_numbers(buffer);
    int64_t& begin = on_host ? next : device_next;
    Part part{buffer,
              n > 0 ? (on_host ? packed_ : device_packed_).as_strided({n}, {1}, begin) : Tensor(),
              {}};
    begin += n;
    if (buffer.dtype() == DType::Float64) part.base = empty({n}, {DType::Float64, buffer.device()});
    has_bases_ |= part.base.defined();
    if (n > 0) parts_.push_back(std::move(part));
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

// Writes a rank's part of the sum. A rank without samples adds nothing to a floating buffer,
// whatever its buffer holds (0 · infinity is not zero).
void StepExchange::pack(const Part& part, double samples) const {
  const double weight = is_floating(part.buffer.dtype()) ? samples : group_.rank() == 0 ? 1 : 0;
  const Tensor x = numbers_of(part.buffer);
  if (weight == 0) {
    kernels::fill(part.packed, -0.0);  // 0.0 would turn a sum of -0.0 into 0.0
  } else if (part.base || !x.device().is_cpu()) {
    copy_(part.packed, part.base ? apart_from(part.base, x) : x);
    multiply(part.packed, weight);
  } else {
    auto* next = part.packed.data<double>();
    visit_dtype("step_exchange", x.dtype(), [&]<class T>() {
      for (const T value : std::span(x.data<T>(), static_cast<size_t>(x.numel())))
        *next++ = weight * static_cast<double>(value);
    });
  }
}

void StepExchange::unpack(const Part& part, double samples) const {
  const bool floating = is_floating(part.buffer.dtype());
  if (floating && part.buffer.dtype() != DType::Float64 && part.buffer.device().is_cpu() &&
      part.buffer.is_contiguous()) {
    begin_write("step_exchange", part.buffer);
    const auto* next = part.packed.data<double>();
    return visit_dtype("step_exchange", part.buffer.dtype(), [&]<class T>() {
      for (T& x : std::span(part.buffer.data<T>(), static_cast<size_t>(part.buffer.numel())))
        x = static_cast<T>(*next++ / samples);
    });
  }
  if (floating) multiply(part.packed, 1 / samples);
  take_numbers(part.buffer, part.base ? moved_from(part.base, part.packed) : part.packed);
}

StepNumbers StepExchange::run(const StepNumbers& own, const CollectiveOptions& options) {
  if (has_bases_) learn_bases(own.samples, options);
  auto* packed = packed_.data<double>();
  std::memcpy(packed, &own, sizeof own);
  for (const Part& part : parts_) pack(part, own.samples);
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
