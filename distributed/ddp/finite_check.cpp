#include "ringgrad/distributed/ddp/finite_check.h"

#include <algorithm>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

// A record is step · 2^kPositionBits + the position among all gradients; kAllFinite: none.
constexpr int kPositionBits = 36;
constexpr int64_t kAllFinite = int64_t{1} << 62;

}  // namespace

FiniteCheck::FiniteCheck(ProcessGroup& group, const NamedTensors& parameters, const std::vector<ArenaRange>& arenas)
    : group_(group), parameters_(parameters), arenas_(arenas), found_(tensor<int64_t>({kAllFinite})) {}

std::optional<std::string> FiniteCheck::look(int parameter, const Tensor& gradient, int64_t step) {
  if (!gradient.device().is_cpu()) return {};
  kernels::find_not_finite(found_, gradient, 0);
  if (found_.item<int64_t>() == kAllFinite) return {};
  return describe(parameter, group_.rank(), str(step));
}

void FiniteCheck::look_later(const BucketRange& range, const Tensor& flat, int64_t step) {
  if (flat.device().is_cpu()) return;
  if (!record_) record_ = full({1}, static_cast<double>(kAllFinite), {.dtype = DType::Int64, .device = flat.device()});
  int64_t position = range.begin;
  for (int a = 0; a < range.arena; ++a) position += arenas_[a].grads.numel();
  if (device_backend(flat.device().type).capturing()) recorded_step_ = step;
  kernels::find_not_finite(record_, flat, (std::max<int64_t>(step, 0) << kPositionBits) + position);
}

std::optional<std::string> FiniteCheck::compare(const CollectiveOptions& options) {
  if (!record_) return {};
  const auto records = all_gather_values<int64_t>(group_, {record_.item<int64_t>()}, options);
  const auto step_of = [&](int64_t record) { return record >> kPositionBits; };
  const auto first =
      std::min_element(records.begin(), records.end(), [&](int64_t a, int64_t b) { return step_of(a) < step_of(b); });
  if (*first == kAllFinite) return {};
  int64_t position = *first & ((int64_t{1} << kPositionBits) - 1);
  size_t a = 0;
  while (position >= arenas_[a].grads.numel()) position -= arenas_[a++].grads.numel();
  const auto next = std::upper_bound(arenas_[a].offsets.begin(), arenas_[a].offsets.end(), position);
  std::string step = str(step_of(*first));
  if (step_of(*first) == recorded_step_) step += str(" or one of its replays until step ", options.step);
  return describe(arenas_[a].parameters[static_cast<size_t>(next - arenas_[a].offsets.begin()) - 1],
                  static_cast<int>(first - records.begin()), step);
}

std::string FiniteCheck::describe(int parameter, int rank, const std::string& step) const {
  return str("the gradient of ", parameters_[parameter].first, " is not finite on rank ", rank, " in step ", step,
             "; the loss diverged (a smaller learning rate or gradient clipping helps), or a batch has a NaN");
}

}  // namespace ringgrad
