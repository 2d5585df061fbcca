#include "ringgrad/distributed/ddp/reducer.h"

#include <algorithm>
#include <bit>
#include <random>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/distributed/ddp/launch_order.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

constexpr size_t kNamesShown = 4;

// "fc.weight layer4.1.bn2.bias … conv1.weight (62 parameters)"
std::string names_of(const NamedTensors& parameters, const std::vector<int>& listed) {
  std::string text;
  for (size_t i = 0; i < listed.size(); ++i) {
    const bool shown =
        listed.size() <= kNamesShown || i + 2 < kNamesShown || i + 1 == listed.size();
    if (shown) text += (text.empty() ? "" : " ") + parameters[listed[i]].first;
    if (!shown && i + 2 == kNamesShown) text += " …";
  }
  return listed.size() <= kNamesShown ? text : str(text, " (", listed.size(), " parameters)");
}

}  // namespace

Reducer::Reducer(ProcessGroup& group, NamedTensors parameters, std::vector<Tensor> buffers,
                 ModuleState module, ReducerOptions options)
    : group_(group),
      parameters_(std::move(parameters)),
      module_(std::move(module)),
      options_(std::move(options)),
      exchange_(group, std::move(buffers)),
      contribution_(options_.weighting),
      usual_weight_(options_.weighting == Weighting::Ranks ? 1 : options_.usual_weight) {
  // Two reducers of one group may have the same layout; a random number keeps their buckets apart.
  const Tensor identity = tensor<int64_t>({static_cast<int64_t>(std::random_device()())});
  group_.broadcast(identity, 0).wait();
  identity_ = static_cast<uint64_t>(identity.item<int64_t>());

  std::vector<int> order;  // backward finishes the last layers first
  for (int i = static_cast<int>(parameters_.size()) - 1; i >= 0; --i) order.push_back(i);
  arenas_ = lay_out_gradients(group_, parameters_, order);
  views_.resize(parameters_.size());
  for (const ArenaRange& arena : arenas_)
    for (size_t k = 0; k < arena.parameters.size(); ++k) {
      const Shape& shape = parameters_[arena.parameters[k]].second.shape();
      views_[arena.parameters[k]] =
          arena.grads.as_strided(shape, contiguous_strides(shape), arena.offsets[k]);
    }
  plan(order, options_.caps);
  if (program_observer) program_observer->averaged(parameters_);
  for (size_t i = 0; i < parameters_.size(); ++i)
    hooks_.emplace_back(register_post_accumulate_grad_hook(
        parameters_[i].second,
        [this, i](const Tensor&) { mark_variable_ready(static_cast<int>(i)); }));
}

// Plans new buckets over the same arenas. No tensor moves, because the user may hold it.
void Reducer::plan(const std::vector<int>& order, BucketCaps caps) {
  if (order == order_ && caps == options_.caps) return;
  order_ = order;
  options_.caps = caps;
  buckets_.clear();
  buckets_of_.assign(parameters_.size(), {});
  for (BucketRange& range : plan_buckets(arenas_, order, caps)) {
    for (const int i : range.parameters)
      buckets_of_[i].push_back(static_cast<int>(buckets_.size()));
    Bucket bucket;
    bucket.flat =
        arenas_[range.arena].grads.as_strided({range.end - range.begin}, {1}, range.begin);
    bucket.names = std::make_shared<const std::string>(names_of(parameters_, range.parameters));
    bucket.range = std::move(range);
    buckets_.push_back(std::move(bucket));
  }
  totals_.plans += 1;
  update_layout();
}

// Ranks that weight or compress their gradients in another way must not add them up either.
void Reducer::update_layout() {
  const std::string hook = options_.comm_hook.target_type().name();
  std::vector<int64_t> layout{static_cast<int64_t>(identity_),
                              static_cast<int64_t>(options_.weighting),
                              std::bit_cast<int64_t>(options_.usual_weight),
                              static_cast<int64_t>(hash_of(hook.data(), hook.size()))};
  for (const Bucket& bucket : buckets_) {
    const BucketRange& range = bucket.range;
    layout.insert(layout.end(), {range.arena, range.begin, range.end});
    layout.insert(layout.end(), range.parameters.begin(), range.parameters.end());
  }
  layout_ = hash_of(layout.data(), layout.size() * sizeof(int64_t));
}

void Reducer::register_comm_hook(CommHook hook) {
  options_.comm_hook = std::move(hook);
  for (Bucket& bucket : buckets_) bucket.scratch = {};
  update_layout();
}

void Reducer::look_at(ModuleState module) {
  if (const auto reason = module_.look(std::move(module)))
    fail_all_ranks(str("on rank ", group_.rank(), ", before step ", step_ + 1, ": ", *reason));
}

// -- what the engine tells ------------------------------------------------------------------------

std::vector<Tensor> Reducer::prepare_for_backward(std::vector<Tensor> outputs, int64_t samples,
                                                  bool training) {
  std::vector<Tensor> tracked, same;
  for (const Tensor& output : outputs)
    if (output && output.requires_grad()) {
      tracked.push_back(output);
      same.push_back(output.detach());
    }
  if (tracked.empty()) return outputs;
  const int64_t forward = synchronizing_ && training ? contribution_.begin_forward() : 0;
  same = differentiable(
      "distributed_data_parallel", tracked, std::move(same),
      [self = weak_from_this(), forward, samples](std::span<const Tensor> dy) -> Gradients {
        const auto reducer = self.lock();
        CHECK(reducer, "distributed_data_parallel: the wrapper was destroyed between forward and ",
              "backward, so nobody would average the gradients; keep it until backward is done");
        return reducer->outputs_reached(forward, samples, dy);
      });
  for (auto next = same.begin(); Tensor & output : outputs)
    if (output && output.requires_grad()) output = *next++;
  return outputs;
}

// The pass under way; the first one who asks begins it.
std::shared_ptr<Reducer::Pass> Reducer::current_pass() {
  if (auto pass = pass_.lock()) return pass;
  const std::shared_ptr<Pass> pass(new Pass{shared_from_this(), contribution_});
  pass_ = pass;
  if (synchronizing_) {
    begin_step();
    pass->leads = group_.lead(pass);
  }
  queue_final_callback([pass] {
    pass->reducer->finalize_backward(pass->reached);
    pass->finished = true;
  });
  return pass;
}

void Reducer::begin_step() {
  recorded_.reset();
  if (device_backend(arenas_[0].grads.device().type).capturing()) join_replays();
  ++step_;
  begun_ = Clock::now();
  next_ = 0;
  ready_order_.clear();
  ready_.assign(parameters_.size(), false);
  versions_.clear();
  for (const auto& [name, parameter] : parameters_)
    versions_.push_back(parameter.storage()->version());
  ready_times_.clear();
  scale_ = options_.weighting != Weighting::Ranks && travels_in_few_bits() ? 0 : usual_weight_;
  log_.step = step_;
  pending_.clear();
  log_.buckets.resize(buckets_.size());
  for (size_t b = 0; b < buckets_.size(); ++b) {
    pending_.push_back(static_cast<int>(buckets_[b].range.parameters.size()));
    buckets_[b].work = {};
    log_.buckets[b] = {
        buckets_[b].flat.numel() * static_cast<int64_t>(itemsize(buckets_[b].flat.dtype())),
        buckets_[b].names};
  }
}

// The newest forward in the graph decides how many samples this pass stands for: others of the same
// pass, such as a discriminator's batch of real and batch of generated images, are as large.
// Returns what the module gets of dy.
Gradients Reducer::outputs_reached(int64_t forward, int64_t samples, std::span<const Tensor> dy) {
  // autograd::grad(): parameters get no gradients, so there is nothing to average.
  if (!pass_accumulates()) {
    contribution_.reach(forward);
    return {dy.begin(), dy.end()};
  }
  const auto pass = current_pass();
  contribution_.reach(forward);
  if (!std::exchange(pass->reached, true)) {
    contribution_.begin_pass(samples);
    contribution_of_this_pass = &contribution_;
    // Gradients from before weigh nothing, either.
    if (contribution_.weight() == 0 && contribution_.passes() == 1)
      for (const ArenaRange& arena : arenas_) kernels::fill(arena.grads, 0);
    if (synchronizing_) {
      set_phase(Phase::Backward);
      ringgrad::set_step(step_);  // should this rank die before its first bucket is under way
      if (pass->leads) agree_on_scale();
      all_reduce_ready_buckets(*pass);  // the hooks of some parameters may have come before
    }
    if (contribution_.passes() == 1 && usual_weight_ > 0) contribution_.set_usual(usual_weight_);
  }
  Gradients gradients(dy.begin(), dy.end());
  if (contribution_.weight() == 0)
    for (Tensor& gradient : gradients)
      if (gradient) gradient = zeros_like(gradient);
  return gradients;
}

void Reducer::mark_variable_ready(int parameter) {
  if (!synchronizing_) return;
  const auto pass = current_pass();
  const std::string& name = parameters_[parameter].first;
  if (ready_[parameter])
    fail_all_ranks(
        str("the gradient of ", name, " came twice in the backward of step ", step_, " on rank ",
            group_.rank(),
            ", and may have been averaged before the second part was there; convert or move ",
            "a module before the first of the forwards that are parts of one loss"));
  check_not_written(parameter, name);
  take_gradient(parameter);
  ready_[parameter] = true;
  ready_order_.push_back(parameter);
  if (options_.planner && !replanned_) {
    const Tensor& grad = views_[parameter];
    ready_times_.push_back({grad.numel() * static_cast<int64_t>(itemsize(grad.dtype())), now()});
  }
  if (options_.exact_times)
    for (size_t b = 0; b < next_; ++b)
      if (log_.buckets[b].completed == 0 && buckets_[b].work.done())
        log_.buckets[b].completed = end_of(buckets_[b].work);
  const std::vector<int> complete = buckets_completed(pending_, buckets_of_[parameter]);
  for (const int b : complete) log_.buckets[b].ready = now();
  if (!complete.empty()) all_reduce_ready_buckets(*pass);
}

// Fails if the parameter was written to during backward. An optimizer that steps in a hook uses
// this rank's gradient alone, and the ranks' parameters become different.
void Reducer::check_not_written(int parameter, const std::string& until) {
  if (parameters_[parameter].second.storage()->version() == versions_[parameter]) return;
  const std::string after =
      ready_order_.empty() ? "" : parameters_[ready_order_.back()].first + " and of ";
  fail_all_ranks(str("on rank ", group_.rank(),
                     " parameters were written to during the backward of step ", step_,
                     ", about when the gradients of ", after, until,
                     " were complete, and before they were averaged; ",
                     "call optimizer.step() after backward(), not in a hook"));
}

// Sees to it that the gradient lies in the arena, and is one. A user may have dropped or replaced
// it, and backward then made a new one, or none.
void Reducer::take_gradient(int parameter) {
  const auto& [name, tensor] = parameters_[parameter];
  const Tensor grad = tensor.grad(), &view = views_[parameter];
  if (!grad.defined()) {
    fill_(view, 0);
    tensor.set_grad(view);
  } else if (grad.raw_data() != view.raw_data() || !grad.is_contiguous()) {
    CHECK(grad.dtype() == view.dtype() && grad.device() == view.device(),
          "distributed_data_parallel: ", name, " is now ", grad.dtype(), " on ", grad.device(),
          ", but was ", view.dtype(), " on ", view.device(),
          " when the module was wrapped; convert it before");
    copy_(view, grad);
    tensor.set_grad(view);
  }
  if (options_.check_finite && contribution_.must_be_finite())
    if (const auto reason = finite_check_.look(parameter, view, step_)) fail_all_ranks(*reason);
}

// Ends the step on all ranks: the others wait for this one's buckets, and learn the reason at once.
void Reducer::fail_all_ranks(const std::string& reason) {
  group_.abort(reason, FailureKind::Failed);
  throw Error("distributed_data_parallel: " + reason);
}

// -- launching and waiting ------------------------------------------------------------------------

CollectiveOptions Reducer::options_for(int bucket,
                                       const std::shared_ptr<const std::string>& about) const {
  return {.step = step_, .bucket = bucket, .layout = layout_, .about = about};
}

void Reducer::scale(const Tensor& x, double factor) const {
  if (factor != 1) kernels::affine(x, x, factor, 0);
}

bool Reducer::travels_in_few_bits() const {
  return options_.comm_hook ||
         std::any_of(arenas_.begin(), arenas_.end(),
                     [](const ArenaRange& arena) { return itemsize(arena.grads.dtype()) == 2; });
}

// Agrees on the scale before the first bucket. It may run in the middle of backward, so it must not
// write to anything that the graph has saved, such as buffers.
void Reducer::agree_on_scale() {
  if (scale_ > 0) return;
  const Tensor largest = full({}, contribution_.weight(), {.dtype = DType::Float64});
  group_.all_reduce(largest, ReduceOp::Max, options_for(-1, weights_)).wait();
  scale_ = largest.item<double>();
  if (scale_ > 0)
    usual_weight_ = scale_;
  else
    scale_ = 1;  // no rank has a weight yet; the next step may have one
}

// All but the last, which finalize_backward() executes on this thread: handing it to another one
// would cost more than a small all-reduce does.
void Reducer::all_reduce_ready_buckets(const Pass& pass) {
  if (!pass.reached || !pass.leads || !options_.overlap) return;
  for (const size_t end = launchable(pending_, next_); next_ < end;)
    all_reduce_bucket(/*async=*/true);
}

void Reducer::all_reduce_bucket(bool async) {
  const auto index = static_cast<int>(next_);
  Bucket& bucket = buckets_[next_];
  BucketLog& log = log_.buckets[next_];
  ++next_;
  if (contribution_.is_nothing()) kernels::fill(bucket.flat, 0);
  const double factor = factor_before(contribution_.unit(), scale_);
  scale(bucket.flat, factor);
  if (options_.check_finite) {
    finite_check_.look_later(bucket.range, bucket.flat, step_);
    // The gradients themselves have been looked at.
    if (factor > 1) must_be_finite(bucket.range, bucket.flat);
  }
  CollectiveOptions options = options_for(index, bucket.names);
  options.async = async;
  log.launched = seconds_since(begun_);
  if (options_.comm_hook)
    bucket.work = options_.comm_hook({group_, bucket.flat, bucket.range.parameters, index,
                                      next_ == buckets_.size(), std::move(options), bucket.scratch,
                                      check_of(bucket.range)});
  else
    bucket.work = group_.all_reduce(bucket.flat, ReduceOp::Average, options);
  totals_.bytes += log.bytes;
}

// Fails on all ranks if `sent`, which is about to travel, is not finite. REQUIRES: on the thread of
// backward.
void Reducer::must_be_finite(const BucketRange& range, const Tensor& sent) {
  if (const auto reason = finite_check_.look_at_sent(range, sent, step_)) fail_all_ranks(*reason);
}

// Returns the check for what a hook sends. It is empty if check_finite is off or if this rank
// contributes nothing.
std::function<void(const Tensor&)> Reducer::check_of(const BucketRange& range) {
  if (!options_.check_finite || contribution_.is_nothing()) return {};
  return [self = weak_from_this(), range](const Tensor& sent) {
    if (const auto reducer = self.lock()) reducer->must_be_finite(range, sent);
  };
}

// Seconds since backward began.
double Reducer::now() const {
  if (options_.exact_times) synchronize(current_stream(parameters_[0].second.device()));
  return seconds_since(begun_);
}

double Reducer::end_of(const Work& work) const {
  const auto ended = work.ended();
  return ended == Clock::time_point() ? now() : seconds_between(begun_, ended);
}

void Reducer::finalize_backward(bool reached) {
  if (!synchronizing_) return;
  log_.computed = now();
  if (!reached)
    fail_all_ranks(
        str("backward reached ", parameters_[ready_order_.front()].first, " in step ", step_,
            " on rank ", group_.rank(),
            ", but no output of the wrapper is part of the loss, so gradients would not be ",
            "averaged. Call the wrapper, not the module in it; or backward under no_sync()"));
  agree_on_scale();
  for (int i = 0; i < static_cast<int>(ready_.size()); ++i) {
    check_not_written(i, "the last one");
    if (!ready_[i]) take_gradient(i);  // what other ranks or earlier passes have used
  }
  while (next_ < buckets_.size()) all_reduce_bucket(/*async=*/false);
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].work.wait();
    if (log_.buckets[b].completed == 0) log_.buckets[b].completed = end_of(buckets_[b].work);
  }
  StepNumbers own = contribution_.end_step(flag_);
  own.frozen = Alike::of(frozen_number(parameters_));
  own.modes = Alike::of(own.computed > 0 ? module_.modes() : 0);
  const StepNumbers sum = exchange_.run(own, options_for(-1, weights_));
  check_alike(sum);
  any_flag_ = sum.flags > 0;
  any_data_ = sum.present > 0;
  skipped_ = any_data_ && (sum.skips > 0 || sum.weight == 0);
  for (const ArenaRange& arena : arenas_)
    if (skipped_)
      kernels::fill(arena.grads, 0);
    else if (any_data_)
      scale(arena.grads, factor_after(scale_, sum.weight, group_.size()));
  log_.finished = now();
  if (recorded_) {  // nothing has been averaged yet
    CHECK(!skipped_, "distributed_data_parallel: step ", step_,
          " was recorded, and some rank skips it or all weigh 0; ", "record one that all take");
    *recorded_ = own;
    --step_;
    return;
  }
  totals_.exposed_seconds += log_.exposed();
  totals_.steps += 1;
  if (!replanned_ || totals_.steps % FiniteCheck::kStepsBetweenComparisons == 0)
    if (const auto reason = finite_check_.compare(options_for(-1, weights_)))
      fail_all_ranks(*reason);
  if (!std::exchange(replanned_, true)) plan_as_observed();
}

// Throws if the ranks differ in frozen parameters or modes. Their parameters would become
// different, or their losses would be means of different things.
void Reducer::check_alike(const StepNumbers& sum) {
  check_no_backward_left_out(sum);
  const std::string what = str("distributed_data_parallel, step ", step_);
  if (!sum.frozen.on(group_.size()))
    check_same_lines(group_, what, "set of frozen parameters", frozen_lines(parameters_),
                     "; freeze and unfreeze on all ranks before the same step");
  if (!sum.modes.on(sum.computed))
    check_same_lines(group_, what, "mode", module_.mode_lines(),
                     "; call train() and eval() on all ranks alike");
}

// A rank that has left out a backward is one step behind from then on, and would average its
// gradients with those of others' next batches: the number of its step says nothing, but the
// forward that nobody has used does.
void Reducer::check_no_backward_left_out(const StepNumbers& sum) {
  if (sum.unused.on(group_.size())) return;
  const auto unused = all_gather_values<int64_t>(group_, {contribution_.unused_forwards()});
  const auto [least, most] = std::minmax_element(unused.begin(), unused.end());
  disagree(
      group_,
      str("distributed_data_parallel: rank ", most - unused.begin(),
          " has left out a backward before step ", step_, ": no backward has used ", *most,
          " of its forwards in training mode, and ", *least, " of rank ", least - unused.begin(),
          "'s. Every step takes a backward on every rank, or shadow_step(); forwards that ",
          "need none belong under a NoGradGuard"));
}

// The pass has failed. What it has launched still reads and writes the arenas, where the next
// pass's gradients go.
void Reducer::abandon(const Pass& pass) {
  for (const Bucket& bucket : buckets_) {
    try {
      bucket.work.wait();
    } catch (...) {  // the pass has an error already
    }
  }
  contribution_ = pass.before;
}

// After the first step it is known in which order gradients really become ready, and when; rank 0's
// counts.
void Reducer::plan_as_observed() {
  std::vector<int64_t> order(ready_order_.begin(), ready_order_.end());
  for (const int i : order_)  // those that took no part
    if (std::find(order.begin(), order.end(), i) == order.end()) order.push_back(i);
  const bool plans = options_.planner && !ready_times_.empty() && group_.is_main_process();
  const BucketCaps caps = plans ? options_.planner(ready_times_) : options_.caps;
  order.insert(order.end(), {caps.first_bytes, caps.bytes});
  const Tensor agreed = tensor(order);
  group_.broadcast(agreed, 0, options_for(-1, weights_)).wait();
  order = to_vector<int64_t>(agreed);
  plan({order.begin(), order.end() - 2}, {order.end()[-2], order.end()[-1]});
}

bool Reducer::shadow() {
  CHECK(synchronizing_,
        "shadow_step: inside no_sync(), where no rank waits for another; call it outside");
  begin_step();
  contribution_.give_up();
  finalize_backward(/*reached=*/true);
  return any_data_;
}

}  // namespace ringgrad
