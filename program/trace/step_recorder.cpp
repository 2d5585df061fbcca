#include "ringgrad/program/trace/step_recorder.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ringgrad::program {
namespace {

std::string layer_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

}  // namespace

std::vector<std::vector<Slice>> slices_of(LoadingLog& log) {
  const auto nanoseconds = [](LoadingLog::Clock::time_point time) {
    return time.time_since_epoch().count();
  };
  std::vector<std::vector<Slice>> all;
  for (const auto& thread : log.take()) {
    all.emplace_back();
    for (const LoadingLog::Made& batch : thread)
      all.back().push_back({"batch", nanoseconds(batch.begin), nanoseconds(batch.end)});
  }
  return all;
}

StepRecorder::StepRecorder(nn::Module& model, DistributedDataParallel* ddp) : ddp_(ddp) {
  for (const auto& [name, module] : model.named_modules()) {
    if (!module->children().empty()) continue;
    module_hooks_.push_back(module->register_forward_hook(
        [this, name = name](nn::Module&, const Tensor&, const Tensor&) {
          return layer_is_done(name), Tensor();
        }));
  }
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    names_.push_back(name);
    before_hooks_.push_back(parameter.register_hook([this, name = name](const Tensor&) {
      if (recording_) record_.gradients.push_back({name, steady_nanoseconds(), 0});
      return Tensor();
    }));
    after_hooks_.push_back(
        register_post_accumulate_grad_hook(parameter, [this, name = name](const Tensor&) {
          if (!recording_) return;
          // The hooks of DistributedDataParallel ran before this one.
          record_.gradients.back().end = steady_nanoseconds();
          layer_is_done(layer_of(name));
        }));
  }
  if (!ddp_) return;
  ddp_->register_comm_hook([this](const GradBucket& bucket) {
    if (recording_) {
      const auto bytes = static_cast<int64_t>(bucket.flat.nbytes());
      BucketSlice slice{steady_nanoseconds(), 0, 0, bytes, {}};
      for (const int parameter : bucket.parameters) slice.parameters.push_back(names_[parameter]);
      record_.buckets.push_back(std::move(slice));
    }
    return bucket.average(bucket.flat);
  });
}

StepRecorder::~StepRecorder() {
  if (recording_) set_current(previous_);
  if (ddp_) ddp_->register_comm_hook({});
  for (HookHandle& hook : module_hooks_) hook.remove();
  for (HookHandle& hook : before_hooks_) hook.remove();
  for (HookHandle& hook : after_hooks_) hook.remove();
}

void StepRecorder::start() {
  if (recording_) return;
  recording_ = true;
  previous_ = current();
  set_current(this);
}

void StepRecorder::pause() {
  if (!recording_) return;
  end_phase();
  recording_ = false;
  set_current(previous_);
}

void StepRecorder::end_phase() {
  if (!record_.phases.empty() && record_.phases.back().end == 0)
    record_.phases.back().end = steady_nanoseconds();
}

void StepRecorder::begins(const std::string& phase) {
  if (!recording_) return;
  if (!record_.phases.empty() && record_.phases.back().end == 0 &&
      record_.phases.back().name == phase)
    return;
  end_phase();
  since_ = steady_nanoseconds();
  record_.phases.push_back({phase, since_, 0});
}

// Backward of a layer goes on as long as gradients of its parameters come.
void StepRecorder::layer_is_done(const std::string& name) {
  if (!recording_ || record_.phases.empty()) return;
  const bool backward = record_.phases.back().name == "backward";
  const std::string slice = backward ? name + " backward" : name;
  const int64_t begin = std::exchange(since_, steady_nanoseconds());
  if (backward && !record_.layers.empty() && record_.layers.back().name == slice)
    record_.layers.back().end = since_;
  else
    record_.layers.push_back({slice, begin, since_});
}

void StepRecorder::call(const ObservedCall& call, const std::function<void()>& run) {
  const size_t at = record_.kernels.size();
  record_.kernels.push_back({call.kernel.name(), steady_nanoseconds(), 0});
  run();
  record_.kernels[at].end = steady_nanoseconds();
}

// The log counts seconds from the beginning of backward. The buckets' launches, which are recorded
// here as well, give that moment.
void StepRecorder::end_step() {
  const size_t first = std::exchange(buckets_before_, record_.buckets.size());
  if (!recording_ || !ddp_ || first == record_.buckets.size()) return;
  const ReductionLog& log = ddp_->log();
  const auto nanoseconds = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
  int64_t begun = std::numeric_limits<int64_t>::max();
  int64_t until = 0;
  const auto each = [&](auto what) {
    for (size_t b = first; b < record_.buckets.size(); ++b)
      what(record_.buckets[b], log.buckets[b - first]);
  };
  each([&](const BucketSlice& bucket, const BucketLog& of) {
    begun = std::min(begun, bucket.launched - nanoseconds(of.launched));
  });
  each([&](BucketSlice& bucket, const BucketLog& of) {
    bucket.begin = std::max(bucket.launched, until);
    bucket.end = until = std::max(bucket.begin, begun + nanoseconds(of.completed));
  });
  record_.waits.push_back({"waiting for gradients", begun + nanoseconds(log.computed),
                           begun + nanoseconds(log.finished)});
}

StepRecord StepRecorder::take() {
  buckets_before_ = 0;
  return std::exchange(record_, {});
}

}  // namespace ringgrad::program
