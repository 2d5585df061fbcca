#include "ringgrad/distributed/shards/shard_gradients.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {

ShardGradients::ShardGradients(ProcessGroup& group, const TreeAllReduce& tree,
                               NamedTensors parameters, BucketCaps caps, bool check_finite,
                               bool in_lockstep)
    : group_(group),
      tree_(tree),
      named_(std::move(parameters)),
      check_finite_(check_finite),
      in_lockstep_(in_lockstep) {
  plan(caps);
  if (program_observer) program_observer->averaged(named_);
  std::vector<Tensor> leaves;
  for (const auto& [name, leaf] : named_) leaves.push_back(leaf);
  watch(0, leaves);
}

void ShardGradients::watch(int replica, const std::vector<Tensor>& parameters) {
  const Device home = arenas_[0].grads.device();
  computing_.push_back(-1);
  for (size_t i = 0; i < parameters.size(); ++i)
    hooks_.emplace_back(register_post_accumulate_grad_hook(
        parameters[i], [this, i, replica, home](const Tensor& leaf) {
          if (computing_[replica] < 0) return;
          const Tensor gradient = on_device(leaf.grad(), home);
          leaf.set_grad({});
          const std::lock_guard lock(mutex_);
          take(static_cast<int>(i), computing_[replica], gradient);
        }));
}

// In the order in which backward finishes them, as far as the order of layers says. (The order
// decides when what travels, but no bit.)
void ShardGradients::plan(const BucketCaps& caps) {
  std::vector<int> order;
  for (int i = static_cast<int>(named_.size()) - 1; i >= 0; --i) order.push_back(i);
  arenas_ = lay_out_gradients(group_, named_, order);
  parameters_.resize(named_.size());
  // By arena: one like it for each partial sum; the last one is its own.
  std::vector<std::vector<Tensor>> flats;
  for (const ArenaRange& arena : arenas_) {
    auto& flat = flats.emplace_back();
    while (flat.size() + 1 < tree_.own_partial_sums()) flat.push_back(zeros_like(arena.grads));
    flat.push_back(arena.grads);
    for (size_t k = 0; k < arena.parameters.size(); ++k) {
      const Shape& shape = named_[arena.parameters[k]].second.shape();
      for (const Tensor& x : flat)
        parameters_[arena.parameters[k]].places.push_back(
            x.as_strided(shape, contiguous_strides(shape), x.storage_offset() + arena.offsets[k]));
    }
  }
  std::vector<int64_t> layout;
  for (const BucketRange& range : plan_buckets(arenas_, order, caps)) {
    Bucket bucket;
    for (const Tensor& x : flats[range.arena])
      bucket.partial_sums.push_back(
          x.as_strided({range.end - range.begin}, {1}, x.storage_offset() + range.begin));
    bucket.about = std::make_shared<const std::string>(
        named_[range.parameters.front()].first + " … " + named_[range.parameters.back()].first);
    for (const int i : range.parameters)
      parameters_[i].buckets.push_back(static_cast<int>(buckets_.size()));
    layout.insert(layout.end(), {range.arena, range.begin, range.end});
    buckets_.push_back(std::move(bucket));
  }
  layout_ = hash_of(layout.data(), layout.size() * sizeof(int64_t));
}

void ShardGradients::begin(int64_t step) {
  step_ = step;
  started_ = folded_ = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    named_[i].second.set_grad({});
    parameters_[i].sums.clear();
    parameters_[i].waiting.assign(static_cast<size_t>(tree_.own_shards().size()), {});
    parameters_[i].joined = 0;
  }
  for (Bucket& bucket : buckets_) bucket.pending = 0;
  for (const Parameter& parameter : parameters_)
    for (const int b : parameter.buckets) ++buckets_[b].pending;
}

// Shards mostly come in their order; in lockstep one that does not use a parameter says so later
// than those that do.
void ShardGradients::take(int index, int k, const Tensor& gradient) {
  set_phase(Phase::Backward);
  set_step(step_);  // should this rank die before its first bucket is under way
  Parameter& parameter = parameters_[index];
  const std::string& name = named_[index].first;
  const auto shard = static_cast<size_t>(k);
  CHECK(parameter.joined <= shard && !parameter.waiting[shard], "virtual_ranks: ", name,
        " has two gradients of shard ", tree_.own_shards().begin + k,
        "; add up the shard's losses, and call backward once");
  if (check_finite_)
    if (const auto reason = finite_check_.look(index, gradient, step_)) {
      group_.abort(*reason, FailureKind::Failed);
      throw Error("virtual_ranks: " + *reason);
    }
  // A sum lies in the arena at once, where it stands among the partial sums in the end; only what
  // will still be joined with one before it has memory of its own.
  const auto add = [&](const Tensor& left, const Tensor& right) {
    const size_t at = parameter.sums.size() - 1;
    if (at >= parameter.places.size()) return sum_of(left, right);
    begin_write("virtual_ranks", parameter.places[at]);
    kernels::add(parameter.places[at], left, right);
    return parameter.places[at];
  };
  parameter.waiting[shard] = gradient;
  for (; parameter.joined < parameter.waiting.size() && parameter.waiting[parameter.joined];
       ++parameter.joined) {
    const int next = tree_.own_shards().begin + static_cast<int>(parameter.joined);
    Tensor& value = parameter.waiting[parameter.joined];
    join(parameter.sums, {{next, next + 1}, std::exchange(value, {})}, tree_.shards(), add);
  }
  if (parameter.joined == parameter.waiting.size()) place(index);
}

void ShardGradients::place(int index) {
  Parameter& parameter = parameters_[index];
  for (size_t p = 0; p < parameter.places.size(); ++p)
    if (const Tensor& place = parameter.places[p], &sum = parameter.sums[p].value;
        !sum.is_same(place))
      copy_(place, sum);
  parameter.sums.clear();
  named_[index].second.set_grad(parameter.places.back());
  for (const int b : parameter.buckets) --buckets_[b].pending;
  start_ready_buckets();
}

// In their order, whatever is ready first: all ranks must issue the same collectives.
void ShardGradients::start_ready_buckets() {
  for (; started_ < buckets_.size() && buckets_[started_].pending == 0; ++started_) {
    Bucket& bucket = buckets_[started_];
    bucket.sum = tree_.start(bucket.partial_sums, {.step = step_,
                                                   .bucket = static_cast<int32_t>(started_),
                                                   .layout = layout_,
                                                   .about = bucket.about});
    // The others' part of the bucket before has mostly come: its total goes to all, too, while
    // backward goes on. (All ranks have started that one, or will without waiting for this one; but
    // not where shards wait for each other.)
    if (!in_lockstep_) fold_before(started_);
  }
}

void ShardGradients::fold_before(size_t bucket) {
  for (; folded_ < bucket; ++folded_) tree_.fold(buckets_[folded_].sum);
}

void ShardGradients::end_shard(int k) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].joined <= static_cast<size_t>(k) && !parameters_[i].waiting[k])
      take(static_cast<int>(i), k, zeros_like(named_[i].second));
}

void ShardGradients::finish(double factor) {
  std::fill(computing_.begin(), computing_.end(), -1);
  const auto begun = Work::Clock::now();
  fold_before(buckets_.size());
  for (Bucket& bucket : buckets_) tree_.finish(bucket.sum);
  waited_ += seconds_since(begun);
  for (const ArenaRange& arena : arenas_) {
    begin_write("virtual_ranks", arena.grads);
    kernels::affine(arena.grads, arena.grads, factor, 0);
  }
}

void ShardGradients::abandon() {
  std::fill(computing_.begin(), computing_.end(), -1);
  for (Bucket& bucket : buckets_) {
    try {
      tree_.finish(bucket.sum);
    } catch (...) {  // the step has an error already
    }
  }
}

}  // namespace ringgrad
