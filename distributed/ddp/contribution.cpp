#include "ringgrad/distributed/ddp/contribution.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

int64_t Contribution::begin_forward() {
  open_.push_back(++forwards_);
  return forwards_;
}

void Contribution::reach(int64_t forward) {
  std::erase(open_, forward);
  newest_ = std::max(newest_, forward);
}

void Contribution::begin_pass(int64_t samples) {
  CHECK(weighting_ != Weighting::Given || given_,
        "distributed_data_parallel: backward, and nobody has said what this ",
        "rank's gradients weigh; call set_weight() before, in every step");
  ++passes_;
  pass_samples_ = samples;
  samples_ += (static_cast<double>(samples) - samples_) / passes_;
}

void Contribution::set_weight(double weight) {
  CHECK(weighting_ == Weighting::Given,
        "distributed_data_parallel: set_weight() belongs to Weighting::Given; wrap the ",
        "module with it");
  CHECK(std::isfinite(weight) && weight >= 0, "distributed_data_parallel: the weight is ", weight,
        ", expected what the loss was divided by: a finite number, not negative");
  CHECK(passes_ == 0 || weight == given_, "distributed_data_parallel: the weight of a step was ",
        given_.value_or(0), " in its first backward, and is ", weight,
        " now; divide all losses of a step by the same number");
  given_ = weight;
}

double Contribution::weight() const {
  if (skip_ || passes_ == 0) return 0;
  if (weighting_ == Weighting::Given) return *given_;
  return weighting_ == Weighting::Ranks ? 1 : samples_;
}

double Contribution::unit() const { return weight() > 0 ? weight() : usual_; }

double Contribution::pass_unit() const {
  return weighting_ == Weighting::Samples && pass_samples_ > 0 ? static_cast<double>(pass_samples_)
                                                               : unit();
}

void Contribution::replay(const StepNumbers& recorded) {
  CHECK(!skip_,
        "distributed_data_parallel: skip_step() before a replay of a recorded step, "
        "which averages all ranks' ",
        "gradients; on all ranks, take the step itself instead of the replay");
  CHECK(passes_ == 0, "distributed_data_parallel: a replay of a recorded step after ", passes_,
        " backward passes under ", "no_sync(); record them with the step that averages");
  CHECK(given_.value_or(recorded.weight) == recorded.weight,
        "distributed_data_parallel: the weight is ", given_.value_or(0), ", and was ",
        recorded.weight, " when the step was recorded; on all ranks, take the step ",
        "itself instead of the replay");
  given_.reset();
}

StepNumbers Contribution::end_step(bool flag) {
  unused_ += static_cast<int64_t>(
      std::erase_if(open_, [&](int64_t forward) { return forward < newest_; }));
  const StepNumbers numbers = {.weight = weight(),
                               .samples = weight() > 0 ? samples_ : 0,
                               .present = passes_ > 0 || skip_ ? 1.0 : 0.0,
                               .flags = flag ? 1.0 : 0.0,
                               .skips = skip_ ? 1.0 : 0.0,
                               .computed = passes_ > 0 ? 1.0 : 0.0,
                               .failures = 0,
                               .unused = Alike::of(static_cast<double>(unused_)),
                               .frozen = {},
                               .modes = {}};
  samples_ = 0;
  passes_ = 0;
  given_.reset();
  skip_ = received_ = false;
  return numbers;
}

}  // namespace ringgrad
