#include "ringgrad/distributed/shards/shard_gradients.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {

ShardGradients::ShardGradients(ProcessGroup& group, const TreeAllReduce& tree,
                               NamedTensors parameters, BucketCaps caps, bool check_finite,
                               bool in_lockstep, int zero)
    : GradientBuckets("virtual_ranks", group, std::move(parameters), caps),
      tree_(tree),
      check_finite_(check_finite),
      in_lockstep_(in_lockstep),
      joining_(parameters_.size()),
      sums_(buckets_.size()) {
  for (const ArenaRange& arena : arenas_) {
    auto& flat = flats_.emplace_back();
    while (flat.size() + 1 < tree_.own_partial_sums()) flat.push_back(zeros_like(arena.grads));
    flat.push_back(arena.grads);
    for (size_t k = 0; k < arena.parameters.size(); ++k) {
      const Tensor& own = view(arena.parameters[k]);
      for (const Tensor& x : flat)
        joining_[arena.parameters[k]].places.push_back(
            x.as_strided(own.shape(), own.strides(), arena.offsets[k]));
    }
  }
  if (zero > 0)
    slices_ = std::make_shared<GradientSlices>(zero, group, parameters_, arenas_, buckets_,
                                               /*whole_norms=*/true);
}

ShardGradients::~ShardGradients() {
  if (slices_) slices_->close();
}

void ShardGradients::add_replica(const std::vector<Tensor>& parameters) {
  const auto replica = static_cast<int>(computing_.size());
  computing_.push_back(-1);
  for (int i = 0; i < static_cast<int>(parameters.size()); ++i)
    replica_hooks_.emplace_back(register_post_accumulate_grad_hook(
        parameters[i], [this, replica, i](const Tensor& leaf) { take(replica, i, leaf); }));
}

void ShardGradients::begin() {
  begin_step();
  if (slices_) slices_->restart();
  folded_ = released_ = 0;
  for (size_t i = 0; i < joining_.size(); ++i) {
    parameters_[i].second.set_grad({});
    joining_[i].sums.clear();
    joining_[i].waiting.assign(static_cast<size_t>(tree_.own_shards().size()), {});
    joining_[i].joined = 0;
  }
}

void ShardGradients::take(int replica, int parameter, const Tensor& leaf) {
  if (computing_[replica] < 0) return;
  const Tensor gradient = on_device(leaf.grad(), arenas_[0].grads.device());
  leaf.set_grad({});
  const std::lock_guard lock(mutex_);
  add(parameter, computing_[replica], gradient);
}

// Shards mostly come in their order; in lockstep one that does not use a parameter says so later
// than those that do.
void ShardGradients::add(int parameter, int k, const Tensor& gradient) {
  set_phase(Phase::Backward);
  ringgrad::set_step(step_);  // should this rank die before its first bucket is under way
  Joining& own = joining_[parameter];
  CHECK(own.joined <= static_cast<size_t>(k) && !own.waiting[k],
        "virtual_ranks: ", parameters_[parameter].first, " has two gradients of shard ",
        tree_.own_shards().begin + k, "; add up the shard's losses, and call backward once");
  if (check_finite_)
    if (const auto reason = finite_check_.look(parameter, gradient, step_)) fail_all_ranks(*reason);
  // A sum lies in the arena from the start, at its final place among the partial sums. Only a sum
  // that will still be joined with an earlier one has memory of its own.
  const auto add_two = [&](const Tensor& left, const Tensor& right) {
    const size_t at = own.sums.size() - 1;
    if (at >= own.places.size()) return sum_of(left, right);
    begin_write("virtual_ranks", own.places[at]);
    kernels::add(own.places[at], left, right);
    return own.places[at];
  };
  own.waiting[k] = gradient;
  for (; own.joined < own.waiting.size() && own.waiting[own.joined]; ++own.joined) {
    const int next = tree_.own_shards().begin + static_cast<int>(own.joined);
    Tensor& value = own.waiting[own.joined];
    join(own.sums, {{next, next + 1}, std::exchange(value, {})}, tree_.shards(), add_two);
  }
  if (own.joined == own.waiting.size()) place(parameter);
}

void ShardGradients::place(int parameter) {
  Joining& own = joining_[parameter];
  for (size_t p = 0; p < own.places.size(); ++p)
    if (!own.sums[p].value.is_same(own.places[p])) copy_(own.places[p], own.sums[p].value);
  own.sums.clear();
  parameters_[parameter].second.set_grad(own.places.back());
  if (slices_) slices_->written(parameter);
  GradientBuckets::take(parameter);
  ready(parameter);
}

Work ShardGradients::sum(const GradientBucket& bucket, const CollectiveOptions& options) {
  const auto& [arena, begin, end, parameters] = bucket.range;
  std::vector<Tensor> own;
  for (const Tensor& x : flats_[arena]) own.push_back(x.as_strided({end - begin}, {1}, begin));
  sums_[bucket.index] = tree_.start(std::move(own), options, slices_ != nullptr);
  // Most of the others' part of the previous bucket has come. Its total is sent to all ranks, too,
  // while backward goes on. No rank waits forever for it: every rank starts that bucket without
  // waiting for this one. If shards run in lockstep, that does not hold.
  if (!in_lockstep_) fold_before(bucket.index);
  return sums_[bucket.index].work;
}

void ShardGradients::fold_before(size_t bucket) {
  for (; folded_ < bucket; ++folded_) {
    tree_.fold(sums_[folded_]);
    buckets_[folded_].work = sums_[folded_].work;
  }
  if (slices_)
    for (; released_ + 1 < folded_; ++released_) {
      buckets_[released_].work.wait();
      slices_->reduced(static_cast<int>(released_));
    }
}

void ShardGradients::end_shard(int k) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < joining_.size(); ++i)
    if (joining_[i].joined <= static_cast<size_t>(k) && !joining_[i].waiting[k])
      add(static_cast<int>(i), k, zeros_like(parameters_[i].second));
}

void ShardGradients::end_shards() {
  std::fill(computing_.begin(), computing_.end(), -1);
  launch_rest();
}

void ShardGradients::end_failed_shards() {
  for (int k = 0; k < tree_.own_shards().size(); ++k) end_shard(k);
  end_shards();
}

void ShardGradients::finish(double factor) {
  const auto begun = Work::Clock::now();
  fold_before(buckets_.size());
  wait();
  waited_ += seconds_since(begun);
  std::vector<Tensor> totals = slices_ ? slices_->own_gradients() : std::vector<Tensor>();
  if (!slices_)
    for (const ArenaRange& arena : arenas_) totals.push_back(arena.grads);
  for (const Tensor& total : totals) {
    begin_write("virtual_ranks", total);
    kernels::affine(total, total, factor, 0);
  }
  if (slices_) slices_->finish();
}

void ShardGradients::give_up() {
  std::fill(computing_.begin(), computing_.end(), -1);
  abandon();
  take_back();
}

}  // namespace ringgrad
