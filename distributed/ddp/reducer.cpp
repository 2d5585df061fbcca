#include "ringgrad/distributed/ddp/reducer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/ddp/observed_order.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

void scale(const Tensor& x, double factor) {
  if (factor != 1) kernels::affine(x, x, factor, 0);
}

}  // namespace

Reducer::Reducer(ProcessGroup& group, NamedTensors parameters, std::vector<Tensor> buffers,
                 ModuleState module, ReducerOptions options)
    : GradientBuckets("distributed_data_parallel", group, std::move(parameters), options.caps),
      module_(std::move(module)),
      options_(std::move(options)),
      exchange_(group, std::move(buffers)),
      number_(std::random_device()()),
      scratch_(buckets_.size()),
      order_(parameters_.size()),
      caps_(options_.caps),
      before_(options_.weighting),
      contribution_(options_.weighting),
      usual_weight_(options_.weighting == Weighting::Ranks ? 1 : options_.usual_weight) {
  CHECK(std::isfinite(options_.usual_weight) && options_.usual_weight >= 0,
        "distributed_data_parallel: usual_weight is ", options_.usual_weight,
        ", expected what a rank's loss is usually divided by, or 0 for that of the first step");
  std::iota(order_.rbegin(), order_.rend(), 0);
  const Tensor agreed = tensor<int64_t>({number_});
  group.broadcast(agreed, 0).wait();
  number_ = agreed.item<int64_t>();
  totals_.plans = 1;
  identify();
  if (options_.zero == 0) return;
  check_no_hook(options_.comm_hook);
  slices_ = std::make_shared<GradientSlices>(options_.zero, group, parameters_, arenas_, buckets_,
                                             /*whole_norms=*/false);
}

Reducer::~Reducer() {
  if (slices_) slices_->close();
}

void Reducer::check_no_hook(const CommHook& hook) const {
  CHECK(options_.zero == 0 || !hook,
        "distributed_data_parallel: a communication hook with zero = ", options_.zero,
        ": a hook averages whole buckets, and no rank would have them; leave out one of the two");
}

void Reducer::plan_anew(const std::vector<int>& order, const BucketCaps& caps) {
  const bool is_other = order != order_ || caps != caps_;
  if (is_other) use(plan_in_any_order(arenas_, order, caps));  // or throws, and nothing changes
  replanned_ = true;
  if (!is_other) return;
  order_ = order;
  caps_ = caps;
  scratch_.assign(buckets_.size(), {});
  if (slices_) {
    // Slices of the new buckets are other elements.
    if (!slices_->zeroed()) slices_->gather_gradients();
    slices_->plan(buckets_);
  }
  totals_.plans += 1;
}

// Two reducers of one group may have the same layout; a random number keeps their buckets apart.
// Ranks that weight or compress their gradients in another way must not add them up either.
void Reducer::identify() {
  const std::string hook = options_.comm_hook.target_type().name();
  const std::array<int64_t, 4> identity{number_, static_cast<int64_t>(options_.weighting),
                                        std::bit_cast<int64_t>(options_.usual_weight),
                                        static_cast<int64_t>(hash_of(hook.data(), hook.size()))};
  set_identity(hash_of(identity.data(), sizeof identity));
}

void Reducer::register_comm_hook(CommHook hook) {
  check_no_hook(hook);
  options_.comm_hook = std::move(hook);
  scratch_.assign(buckets_.size(), {});
  identify();
}

void Reducer::look_at(ModuleState module) {
  if (const auto reason = module_.look(std::move(module)))
    fail_all_ranks(str("on rank ", group_.rank(), ", before step ", step_ + 1, ": ", *reason));
}

// -- what the engine tells ------------------------------------------------------------------------

std::vector<Tensor> Reducer::prepare_for_backward(std::vector<Tensor> outputs, int64_t samples,
                                                  bool training) {
  ranks_meet_ |= std::exchange(normalized_over_ranks, false);
  std::vector<Tensor> tracked;
  std::vector<Tensor> same;
  for (const Tensor& output : outputs)
    if (output && output.requires_grad()) {
      tracked.push_back(output);
      same.push_back(output.detach());
    }
  if (tracked.empty()) return outputs;
  const int64_t forward = synchronizing_ && training ? contribution_.begin_forward() : 0;
  same = differentiable(
      "distributed_data_parallel", tracked, std::move(same),
      [self = weak(), forward, samples](std::span<const Tensor> dy) -> Gradients {
        const auto reducer = self.lock();
        CHECK(reducer, "distributed_data_parallel: the wrapper was destroyed between forward and ",
              "backward, so nobody would average the gradients; keep it until backward is done");
        return reducer->outputs_reached(forward, samples, dy);
      });
  for (auto next = same.begin(); Tensor & output : outputs)
    if (output && output.requires_grad()) output = *next++;
  return outputs;
}

void Reducer::begin_pass() {
  before_ = contribution_;
  reached_ = launching_ = false;
  if (synchronizing_) begin_averaging();
}

void Reducer::begin_averaging() {
  recorded_.reset();
  if (device_backend(arenas_[0].grads.device().type).capturing()) join_replays();
  if (slices_ && !slices_->zeroed())
    fail_all_ranks(
        str("on rank ", group_.rank(), ", step ", step_ + 1,
            " begins with the averages of the step before it, of which with zero = ", options_.zero,
            " no rank has all; call the optimizer's zero_grad() before (a ShardedOptimizer's)"));
  released_ = 0;
  begin_step();
  begun_ = Clock::now();
  versions_.clear();
  for (const auto& [name, parameter] : parameters_)
    versions_.push_back(parameter.storage()->version());
  ready_times_.clear();
  scale_ = options_.weighting != Weighting::Ranks && travels_in_few_bits() ? 0 : usual_weight_;
  log_.step = step_;
  log_.buckets.clear();
  for (const GradientBucket& bucket : buckets_)
    log_.buckets.push_back({static_cast<int64_t>(bucket.flat.nbytes()), bucket.names});
}

void Reducer::end_pass(bool failed) {
  contribution_of_this_pass = nullptr;
  if (failed && detail::pass_error) take_part_in_rest(detail::pass_error);
  GradientBuckets::end_pass(failed);
  if (failed) contribution_ = before_;
}

// See Note [A backward that throws].
void Reducer::take_part_in_rest(const std::exception_ptr& error) {
  if (!reached_ || recorded_ || is_noticed(error)) return;
  const auto end_group = [&] {
    group_.abort(str("on rank ", group_.rank(), " the backward of step ", step_,
                     " has failed: ", words_of(error)),
                 FailureKind::Failed);
  };
  if (ranks_meet_ && group_.size() > 1) return end_group();
  if (!synchronizing_ || !leads() || launching_) return;
  failure_ = words_of(error);
  contribution_.skip();
  try {
    finalize_backward();
  } catch (...) {
    // The group has failed, or this is the error that all ranks get; else they would wait.
    if (!is_noticed(std::current_exception())) end_group();
  }
  failure_.clear();
}

// Gradients with a history lie outside the buckets, and ranks average numbers.
static void check_no_graph() {
  CHECK(!grad_enabled(),
        "distributed_data_parallel: create_graph: gradients that ranks average have no history; "
        "take those with one by autograd::grad(), and call backward() on the outer loss");
}

// The newest forward in the graph decides how many samples this pass stands for. Other forwards of
// the same pass, such as a discriminator's batches of real and of generated images, have as many.
// Returns the module's part of dy.
Gradients Reducer::outputs_reached(int64_t forward, int64_t samples, std::span<const Tensor> dy) {
  // autograd::grad(): parameters get no gradients, so there is nothing to average.
  if (!pass_accumulates()) {
    contribution_.reach(forward);
    return {dy.begin(), dy.end()};
  }
  check_no_graph();
  join_pass();
  contribution_.reach(forward);
  if (!std::exchange(reached_, true)) {
    contribution_.begin_pass(samples);
    contribution_of_this_pass = &contribution_;
    // Gradients of earlier passes have no weight, either.
    if (contribution_.weight() == 0 && contribution_.passes() == 1)
      for (const ArenaRange& arena : arenas_) kernels::fill(arena.grads, 0);
    if (synchronizing_) {
      set_phase(Phase::Backward);
      ringgrad::set_step(step_);  // should this rank die before its first bucket is under way
      if (leads()) agree_on_scale();
      launch_ready();  // the hooks of some parameters may have come before
    }
    if (contribution_.passes() == 1 && usual_weight_ > 0) contribution_.set_usual(usual_weight_);
  }
  Gradients gradients(dy.begin(), dy.end());
  if (contribution_.weight() == 0)
    for (Tensor& gradient : gradients)
      if (gradient) gradient = zeros_like(gradient);
  return gradients;
}

void Reducer::gradient_complete(int parameter, const Tensor&) {
  check_no_graph();
  if (slices_) slices_->written(parameter);
  if (!synchronizing_) return;
  join_pass();
  take(parameter);
  check_not_written(parameter, parameters_[parameter].first);
  check_finite(parameter);
  if (options_.planner && !replanned_) {
    const Tensor& grad = view(parameter);
    ready_times_.push_back({static_cast<int64_t>(grad.nbytes()), now()});
  }
  if (options_.exact_times)
    for (size_t b = 0; b < launched(); ++b)
      if (buckets_[b].work.done()) bucket_done(static_cast<int>(b));
  ready(parameter);
}

void Reducer::check_finite(int parameter) {
  if (!options_.check_finite || !contribution_.must_be_finite()) return;
  if (const auto reason = finite_check_.look(parameter, view(parameter), step_))
    fail_all_ranks(*reason);
}

// Fails if the parameter was written to during backward. An optimizer that steps in a hook uses
// this rank's gradient alone, and the ranks' parameters become different.
void Reducer::check_not_written(int parameter, const std::string& until) {
  if (parameters_[parameter].second.storage()->version() == versions_[parameter]) return;
  const std::string after =
      arrived().empty() ? "" : parameters_[arrived().back()].first + " and of ";
  fail_all_ranks(str("on rank ", group_.rank(),
                     " parameters were written to during the backward of step ", step_,
                     ", about when the gradients of ", after, until,
                     " were complete, and before they were averaged; ",
                     "call optimizer.step() after backward(), not in a hook"));
}

// -- launching and waiting ------------------------------------------------------------------------

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
  group_.all_reduce(largest, ReduceOp::Max, options_at_end()).wait();
  scale_ = largest.item<double>();
  if (scale_ > 0)
    usual_weight_ = scale_;
  else
    scale_ = 1;  // no rank has a weight yet; the next step may have one
}

Work Reducer::sum(const GradientBucket& bucket, const CollectiveOptions& options) {
  launching_ = true;
  Work work = sum_of(bucket, options);
  launching_ = false;
  return work;
}

Work Reducer::sum_of(const GradientBucket& bucket, const CollectiveOptions& options) {
  BucketLog& log = log_.buckets[bucket.index];
  if (contribution_.is_nothing()) kernels::fill(bucket.flat, 0);
  const double factor = factor_before(contribution_.unit(), scale_);
  scale(bucket.flat, factor);
  if (options_.check_finite) {
    finite_check_.look_later(bucket.range, bucket.flat, step_);
    // The gradients themselves have been looked at.
    if (factor > 1) must_be_finite(bucket.range, bucket.flat);
  }
  log.launched = seconds_since(begun_);
  totals_.bytes += log.bytes;
  if (slices_) {
    // A bucket or two are under way; those before them need no memory any more.
    for (; released_ + 1 < bucket.index && options_.zero > 1; ++released_) {
      buckets_[released_].work.wait();
      bucket_done(released_);
      slices_->reduced(released_);
    }
    return group_.reduce_slices(bucket.flat, ReduceOp::Average, options);
  }
  if (!options_.comm_hook) return GradientBuckets::sum(bucket, options);
  return options_.comm_hook({group_, bucket.flat, bucket.range.parameters, bucket.index,
                             launched() == buckets_.size(), options, scratch_[bucket.index],
                             check_of(bucket.range)});
}

void Reducer::bucket_done(int bucket) {
  double& completed = log_.buckets[bucket].completed;
  if (completed == 0) completed = end_of(buckets_[bucket].work);
}

// Fails on all ranks if `sent`, which is about to travel, is not finite. REQUIRES: on the thread of
// backward.
void Reducer::must_be_finite(const BucketRange& range, const Tensor& sent) {
  if (const auto reason = finite_check_.look_at_sent(range, sent, step_)) fail_all_ranks(*reason);
}

// Returns the check for what a hook sends. It is empty if check_finite is off, or if this rank
// contributes nothing.
std::function<void(const Tensor&)> Reducer::check_of(const BucketRange& range) {
  if (!options_.check_finite || contribution_.is_nothing()) return {};
  return [self = weak(), range](const Tensor& sent) {
    if (const auto reducer = self.lock()) reducer->must_be_finite(range, sent);
  };
}

// Returns the seconds since backward began.
double Reducer::now() const {
  if (options_.exact_times) synchronize(current_stream(parameters_[0].second.device()));
  return seconds_since(begun_);
}

double Reducer::end_of(const Work& work) const {
  const auto ended = work.ended();
  return ended == Clock::time_point() ? now() : seconds_between(begun_, ended);
}

void Reducer::finalize_backward() {
  if (!synchronizing_) return;
  log_.computed = now();
  if (!reached_)
    fail_all_ranks(
        str("backward reached ", parameters_[arrived().front()].first, " in step ", step_,
            " on rank ", group_.rank(),
            ", but no output of the wrapper is part of the loss, so gradients would not be ",
            "averaged. Call the wrapper, not the module in it; or backward under no_sync()"));
  agree_on_scale();
  for (int i = 0; i < static_cast<int>(parameters_.size()); ++i) {
    check_not_written(i, "the last one");
    if (taken(i)) continue;
    if (slices_) slices_->written(i);
    take(i);  // those that only other ranks or earlier passes have used
    check_finite(i);
  }
  launch_rest();
  wait();
  StepNumbers own = contribution_.end_step(flag_);
  own.frozen = frozen(parameters_);
  own.modes = Alike::of(own.computed > 0 ? module_.modes() : 0);
  own.failures = failure_.empty() ? 0 : 1;
  const StepNumbers sum = exchange_.run(own, options_at_end());
  if (sum.failures == 0) check_alike(sum);
  // Such a rank has other unused forwards than the others.
  if (sum.failures > 0 || sum.present < group_.size()) contribution_.give_up();
  any_flag_ = sum.flags > 0;
  any_data_ = sum.present > 0;
  skipped_ = any_data_ && (sum.skips > 0 || sum.weight == 0);
  for (const Tensor& grads : averages())
    if (skipped_)
      kernels::fill(grads, 0);
    else if (any_data_)
      scale(grads, factor_after(scale_, sum.weight, group_.size()));
  log_.finished = now();
  if (sum.failures > 0) {
    before_ = contribution_;  // the step is over on all ranks, with the passes before this one
    if (slices_) slices_->finish();
    throw_of_ranks(group_, str("distributed_data_parallel: the backward of step ", step_),
                   failure_);
  }
  if (recorded_) {  // nothing has been averaged yet
    CHECK(!skipped_, "distributed_data_parallel: step ", step_,
          " was recorded, and some rank skips it or all weigh 0; ", "record one that all take");
    *recorded_ = own;
    --step_;
    if (slices_) slices_->finish();
    return;
  }
  totals_.exposed_seconds += log_.exposed();
  totals_.steps += 1;
  if (!replanned_ || totals_.steps % FiniteCheck::kStepsBetweenComparisons == 0)
    if (const auto reason = finite_check_.compare(options_at_end())) fail_all_ranks(*reason);
  if (!replanned_) plan_as_observed();
  if (slices_) slices_->finish();
}

// Returns the averaged gradients that this rank has.
std::vector<Tensor> Reducer::averages() const {
  if (slices_) return slices_->own_gradients();
  std::vector<Tensor> all;
  for (const ArenaRange& arena : arenas_) all.push_back(arena.grads);
  return all;
}

// Throws if the ranks differ in frozen parameters or modes. Their parameters would become
// different, or their losses would be means of different things.
void Reducer::check_alike(const StepNumbers& sum) {
  check_no_backward_left_out(sum);
  const std::string what = str("distributed_data_parallel, step ", step_);
  check_frozen(group_, what, sum.frozen, group_.size(), parameters_);
  if (!sum.modes.on(sum.computed))
    check_same_lines(group_, what, "mode", module_.mode_lines(),
                     "; call train() and eval() on all ranks alike");
}

// A rank that has left out a backward is one step behind from then on, and would average its
// gradients with those of others' next batches. Its step number is the same, but it has a forward
// that no backward has used.
void Reducer::check_no_backward_left_out(const StepNumbers& sum) {
  if (sum.unused.on(group_.size()) || sum.present < group_.size()) return;
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

// After the first step it is known in which order gradients really become ready, and when; rank 0's
// counts.
void Reducer::plan_as_observed() {
  std::vector<int64_t> observed(arrived().begin(), arrived().end());
  for (const int i : order_)  // those that took no part
    if (std::find(observed.begin(), observed.end(), i) == observed.end()) observed.push_back(i);
  const bool plans = options_.planner && !ready_times_.empty() && group_.is_main_process();
  const BucketCaps chosen = plans ? options_.planner(ready_times_) : caps_;
  observed.insert(observed.end(), {chosen.first_bytes, chosen.bytes});
  const Tensor agreed = tensor(observed);
  group_.broadcast(agreed, 0, options_at_end()).wait();
  observed = to_vector<int64_t>(agreed);
  if (slices_) slices_->gather_gradients();  // slices of the new buckets are other elements
  plan_anew({observed.begin(), observed.end() - 2}, {observed.end()[-2], observed.end()[-1]});
}

bool Reducer::shadow() {
  CHECK(synchronizing_,
        "shadow_step: inside no_sync(), where no rank waits for another; call it outside");
  begin_averaging();
  contribution_.give_up();
  reached_ = true;
  finalize_backward();
  return any_data_;
}

}  // namespace ringgrad
