#include "ringgrad/distributed/buckets/gradient_buckets.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/distributed/buckets/launch_order.h"

namespace ringgrad {
namespace {

constexpr size_t kNamesShown = 4;

// "fc.weight layer4.1.bn2.bias … conv1.weight (62 parameters)"
std::string names_of(const NamedTensors& parameters, const std::vector<int>& listed) {
  const size_t last = listed.size() - 1;
  const bool all = last < kNamesShown;
  std::string text = parameters[listed[0]].first;
  for (size_t i = 1; i <= last; ++i)
    if (all || i == 1 || i == last)
      text += (all || i < last ? " " : " … ") + parameters[listed[i]].first;
  return all ? text : str(text, " (", listed.size(), " parameters)");
}

std::mutex averaged_mutex;
BEFORE_MAIN(averaged, hold_over_fork(averaged_mutex));
// The set is never destroyed, because wrappers may be global.
std::set<const AutogradMeta*>& averaged = *new std::set<const AutogradMeta*>();

// Moves values and gradients into arenas, one for each dtype, the last parameters first. The memory
// is shared between the ranks if they can. All gradients become zeros. Returns the arenas in the
// order of dtypes, without `values`.
std::vector<ArenaRange> lay_out_gradients(ProcessGroup& group, const NamedTensors& parameters) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : parameters) tensors.push_back(tensor);
  flatten_parameters(tensors, [&](int64_t numel, TensorOptions options) {
    const auto bytes = static_cast<size_t>(numel) * itemsize(options.dtype);
    auto memory = group.reaches(options.device) ? group.allocate_shared(bytes, options.device)
                                                : std::make_shared<Storage>(bytes, options.device);
    const Tensor flat(std::move(memory), {numel}, {1}, 0, options.dtype);
    fill_(flat, 0);
    return flat;
  });
  std::vector<ArenaRange> arenas = arena_ranges(tensors);
  // Code that moves the parameters away may free that memory.
  for (ArenaRange& arena : arenas) arena.values = {};
  // In the order of the dtypes, whatever the order of the parameters.
  std::ranges::sort(arenas, {}, [](const ArenaRange& arena) { return arena.grads.dtype(); });
  return arenas;
}

}  // namespace

SoleAverager::SoleAverager(const char* who, const NamedTensors& parameters) {
  const std::lock_guard lock(averaged_mutex);
  for (const auto& [name, parameter] : parameters)
    CHECK(!averaged.contains(parameter.autograd_meta().get()), who,
          ": another wrapper averages the gradient of ", name,
          " already, so it would be averaged twice; wrap a module once, or let the other wrapper "
          "go first, and wrap "
          "modules that share a parameter together");
  for (const auto& [name, parameter] : parameters) {
    averaged.insert(parameter.autograd_meta().get());
    parameters_.push_back(parameter.autograd_meta());
  }
}

SoleAverager::~SoleAverager() {
  const std::lock_guard lock(averaged_mutex);
  for (const auto& parameter : parameters_) averaged.erase(parameter.get());
}

bool is_averaged(const Tensor& parameter) {
  const std::lock_guard lock(averaged_mutex);
  return averaged.contains(parameter.autograd_meta().get());
}

GradientBuckets::GradientBuckets(const char* name, ProcessGroup& group, NamedTensors parameters,
                                 BucketCaps caps)
    : group_(group),
      parameters_(std::move(parameters)),
      name_(name),
      sole_averager_(name, parameters_),
      views_(parameters_.size()) {
  arenas_ = lay_out_gradients(group_, parameters_);
  for (const ArenaRange& arena : arenas_)
    for (size_t k = 0; k < arena.parameters.size(); ++k) {
      const Shape& shape = parameters_[arena.parameters[k]].second.shape();
      views_[arena.parameters[k]] =
          arena.grads.as_strided(shape, contiguous_strides(shape), arena.offsets[k]);
    }
  std::vector<int> order;  // backward finishes the last layers first
  for (int i = static_cast<int>(parameters_.size()) - 1; i >= 0; --i) order.push_back(i);
  use(plan_buckets(arenas_, order, caps));
  if (program_observer) program_observer->averaged(parameters_);
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i)
    hooks_.emplace_back(register_post_accumulate_grad_hook(
        parameters_[i].second, [this, i](const Tensor& leaf) { gradient_complete(i, leaf); }));
}

void GradientBuckets::use(std::vector<BucketRange> ranges) {
  buckets_.clear();
  buckets_of_.assign(parameters_.size(), {});
  std::vector<int64_t> layout;
  for (BucketRange& range : ranges) {
    const auto index = static_cast<int>(buckets_.size());
    for (const int i : range.parameters) buckets_of_[i].push_back(index);
    layout.insert(layout.end(), {range.arena, range.begin, range.end});
    layout.insert(layout.end(), range.parameters.begin(), range.parameters.end());
    const Tensor flat =
        arenas_[range.arena].grads.as_strided({range.end - range.begin}, {1}, range.begin);
    auto names = std::make_shared<const std::string>(names_of(parameters_, range.parameters));
    buckets_.push_back({index, std::move(range), flat, std::move(names), {}});
  }
  layout_ = hash_of(layout.data(), layout.size() * sizeof(int64_t));
}

void GradientBuckets::gradient_complete(int parameter, const Tensor&) {
  join_pass();
  take(parameter);
  ready(parameter);
}

Work GradientBuckets::sum(const GradientBucket& bucket, const CollectiveOptions& options) {
  return group_.all_reduce(bucket.flat, ReduceOp::Average, options);
}

void GradientBuckets::finalize_backward() {
  launch_rest();
  wait();
}

void GradientBuckets::end_pass(bool failed) {
  if (failed) abandon();
}

void GradientBuckets::join_pass() {
  if (!pass_.expired()) return;
  const std::shared_ptr<Pass> pass(new Pass{shared_from_this()});
  pass_ = pass;
  begin_pass();
  queue_final_callback([pass] {
    pass->buckets->finalize_backward();
    pass->finished = true;
  });
}

void GradientBuckets::begin_step() {
  ++step_;
  next_ = 0;
  taken_.assign(parameters_.size(), false);
  arrived_.clear();
  pending_.clear();
  for (GradientBucket& bucket : buckets_) {
    pending_.push_back(static_cast<int>(bucket.range.parameters.size()));
    bucket.work = {};
  }
  leads_ = group_.lead(pass_.lock());
}

void GradientBuckets::take(int parameter) {
  if (taken_[parameter])
    fail_all_ranks(
        str("the gradient of ", parameters_[parameter].first,
            " came twice in the backward of step ", step_, " on rank ", group_.rank(),
            ", and may have been averaged before the second part was there; convert or move "
            "a module before the first of the forwards that are parts of one loss"));
  taken_[parameter] = true;
  const auto& [name, tensor] = parameters_[parameter];
  const Tensor grad = tensor.grad();
  const Tensor& view = views_[parameter];
  if (!grad.defined()) {
    fill_(view, 0);
    tensor.set_grad(view);
  } else if (grad.raw_data() != view.raw_data() || !grad.is_contiguous()) {
    CHECK(grad.dtype() == view.dtype() && grad.device() == view.device(), name_, ": ", name,
          " is now ", grad.dtype(), " on ", grad.device(), ", but was ", view.dtype(), " on ",
          view.device(), " when the module was wrapped; convert it before");
    copy_(view, grad);
    tensor.set_grad(view);
  }
}

void GradientBuckets::ready(int parameter) {
  arrived_.push_back(parameter);
  const std::vector<int> complete = buckets_completed(pending_, buckets_of_[parameter]);
  for (const int bucket : complete) bucket_complete(bucket);
  if (!complete.empty()) launch_ready();
}

// Launches all but the last bucket, which launchable() never includes (launch_order.h says why).
void GradientBuckets::launch_ready() {
  if (!leads_ || !may_launch()) return;
  for (const size_t end = launchable(pending_, next_); next_ < end;) launch(/*async=*/true);
}

void GradientBuckets::launch_rest() {
  for (int i = 0; i < static_cast<int>(taken_.size()); ++i)
    if (!taken_[i]) take(i);  // those that only other ranks or earlier passes have used
  while (next_ < buckets_.size()) launch(/*async=*/false);
}

void GradientBuckets::launch(bool async) {
  GradientBucket& bucket = buckets_[next_++];
  CollectiveOptions options = options_for(bucket.index, bucket.names);
  options.async = async;
  bucket.work = sum(bucket, options);
}

void GradientBuckets::wait() {
  for (const GradientBucket& bucket : buckets_) {
    bucket.work.wait();
    bucket_done(bucket.index);
  }
}

void GradientBuckets::abandon() {
  for (const GradientBucket& bucket : buckets_) {
    try {
      bucket.work.wait();
    } catch (...) {  // the step has an error already
    }
  }
}

CollectiveOptions GradientBuckets::options_for(
    int bucket, const std::shared_ptr<const std::string>& about) const {
  return {.step = step_, .bucket = bucket, .layout = layout(), .about = about};
}

void GradientBuckets::fail_all_ranks(const std::string& reason) {
  group_.abort(reason, FailureKind::Failed);
  throw Error(name_ + ": " + reason);
}

}  // namespace ringgrad
