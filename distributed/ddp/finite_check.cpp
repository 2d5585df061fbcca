#include "ringgrad/distributed/ddp/finite_check.h"

#include <algorithm>
#include <limits>

#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/group_values.h"

namespace ringgrad {
namespace {

// A record is (step - origin) · 2^kPositionBits + the position among all gradients. From kAllFinite
// / 2 on it means that all were finite.
constexpr int kPositionBits = 36;
constexpr int64_t kAllFinite = int64_t{1} << 62;
constexpr int64_t kMostSteps = (kAllFinite / 2) >> kPositionBits;  // since the origin

}  // namespace

FiniteCheck::FiniteCheck(ProcessGroup& group, const NamedTensors& parameters,
                         const std::vector<ArenaRange>& arenas)
    : group_(group),
      parameters_(parameters),
      arenas_(arenas),
      found_(tensor<int64_t>({kAllFinite})) {}

std::optional<std::string> FiniteCheck::look(int parameter, const Tensor& gradient, int64_t step) {
  if (!gradient.device().is_cpu()) return {};
  kernels::find_not_finite(found_, gradient, 0);
  if (found_.item<int64_t>() == kAllFinite) return {};
  return describe(parameter, group_.rank(), step);
}

std::optional<std::string> FiniteCheck::look_at_sent(const BucketRange& range, const Tensor& sent,
                                                     int64_t step) {
  if (!sent.device().is_cpu() || !is_floating(sent.dtype())) return {};
  kernels::find_not_finite(found_, as_contiguous(sent), 0);
  const auto position = found_.item<int64_t>();
  if (position == kAllFinite) return {};
  // A hook that does not send exactly one number for each gradient has mixed them.
  const bool one_each = sent.numel() == range.end - range.begin;
  const std::string who = one_each
                              ? parameters_[parameter_at(range.arena, range.begin + position)].first
                              : str("a bucket with ", parameters_[range.parameters.front()].first);
  return str("the gradient of ", who, " is finite on rank ", group_.rank(), " in step ", step,
             ", but not as it travels, ", "in ", sent.dtype(),
             "; smaller gradients help (a smaller loss or loss scale), or a type of more range ",
             "(bf16_compress_hook()), or DistributedDataParallelOptions::usual_weight nearer "
             "to what a rank weighs");
}

void FiniteCheck::look_later(const BucketRange& range, const Tensor& flat, int64_t step) {
  if (flat.device().is_cpu() || found_before_leap_) return;
  if (!record_) {
    record_ = full({1}, static_cast<double>(kAllFinite),
                   {.dtype = DType::Int64, .device = flat.device()});
    origin_ = step;
  }
  int64_t position = range.begin;
  for (int a = 0; a < range.arena; ++a) position += arenas_[a].grads.numel();
  const int64_t number = std::clamp<int64_t>(number_of(step), -kMostSteps, kMostSteps - 1);
  kernels::find_not_finite(record_, flat, number * (int64_t{1} << kPositionBits) + position);
}

void FiniteCheck::call(int64_t number, int64_t step) {
  const int64_t back = origin_ - (step - number);
  origin_ -= back;
  if (!record_ || back == 0) return;
  if (!moved_) moved_ = empty_like(record_);
  kernels::fill(moved_, static_cast<double>(back * (int64_t{1} << kPositionBits)));
  kernels::add(record_, record_, moved_);
}

void FiniteCheck::begin_anew(int64_t step) {
  kernels::fill(record_, static_cast<double>(kAllFinite));
  origin_ = step;
}

void FiniteCheck::expect(int64_t step) {
  const int64_t number = number_of(step);
  if (!record_ || (-kMostSteps / 2 <= number && number < kMostSteps / 2)) return;
  found_before_leap_ = record_.item<int64_t>() < kAllFinite / 2;
  if (!found_before_leap_) begin_anew(step);
}

std::optional<std::string> FiniteCheck::compare(const CollectiveOptions& options) {
  if (!record_) return {};
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const auto record = record_.item<int64_t>();
  const bool found = record < kAllFinite / 2;
  // Origins differ between ranks if one of them had found something before a leap.
  const std::vector<int64_t> own{found ? (record >> kPositionBits) + origin_ : kNone,
                                 record & ((int64_t{1} << kPositionBits) - 1)};
  const auto of_ranks = all_gather_values<int64_t>(group_, own, options);
  size_t first = 0;
  for (size_t i = 0; i < of_ranks.size(); i += own.size())
    if (of_ranks[i] < of_ranks[first]) first = i;
  if (of_ranks[first] == kNone) {  // replays have moved the record, and would move it below this
    begin_anew(options.step);
    return {};
  }
  int64_t position = of_ranks[first + 1];
  size_t a = 0;
  while (position >= arenas_[a].grads.numel()) position -= arenas_[a++].grads.numel();
  return describe(parameter_at(static_cast<int>(a), position), static_cast<int>(first / own.size()),
                  of_ranks[first]);
}

int FiniteCheck::parameter_at(int arena, int64_t position) const {
  const auto& [parameters, offsets, values, grads] = arenas_[arena];
  const auto next = std::upper_bound(offsets.begin(), offsets.end(), position);
  return parameters[static_cast<size_t>(next - offsets.begin()) - 1];
}

std::string FiniteCheck::describe(int parameter, int rank, int64_t step) const {
  return str("the gradient of ", parameters_[parameter].first, " is not finite on rank ", rank,
             " in step ", step,
             "; the loss diverged (a smaller learning rate or gradient clipping helps), "
             "a batch has a NaN, or a loss ",
             "scale was too large: a GradScaler skips such steps, and wants check_finite = false");
}

}  // namespace ringgrad
