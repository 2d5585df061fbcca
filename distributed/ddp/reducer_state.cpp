// The state of a Reducer that a run must restore to go on bit for bit: the order of its buckets,
// and the state of a communication hook.
#include <algorithm>
#include <map>
#include <numeric>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/ddp/observed_order.h"
#include "ringgrad/distributed/ddp/reducer.h"

namespace ringgrad {

std::vector<std::string> Reducer::ready_order() const {
  std::vector<std::string> names;
  if (replanned_)
    for (const int i : order_) names.push_back(parameters_[i].first);
  return names;
}

void Reducer::set_ready_order(const std::vector<std::string>& names,
                              std::optional<BucketCaps> caps) {
  std::map<std::string, int> index;
  for (size_t i = 0; i < parameters_.size(); ++i) index[parameters_[i].first] = static_cast<int>(i);
  std::vector<int> order;
  for (const std::string& name : names)
    if (const auto found = index.extract(name)) order.push_back(found.mapped());
  if (order.size() != parameters_.size() || names.size() != order.size()) return;
  plan_anew(order, caps.value_or(caps_));
}

// "plan" has the positions of the parameters in the order in which they were ready, and the two
// caps. "0", "1", … are the hook's memory for these buckets.
NamedTensors Reducer::comm_hook_state() const {
  NamedTensors state;
  for (size_t b = 0; b < scratch_.size(); ++b)
    if (scratch_[b]) state.emplace_back(std::to_string(b), scratch_[b]);
  if (state.empty()) return state;
  std::vector<int64_t> plan(order_.begin(), order_.end());
  plan.insert(plan.end(), {caps_.first_bytes, caps_.bytes});
  state.emplace_back("plan", tensor(plan));
  return state;
}

void Reducer::load_comm_hook_state(const NamedTensors& state) {
  std::map<std::string, Tensor> kept(state.begin(), state.end());
  std::vector<int> order = order_;
  BucketCaps caps = caps_;
  size_t buckets = buckets_.size();
  if (!kept.empty()) {
    const auto found = kept.extract("plan");
    const auto plan =
        found && found.mapped() ? to_vector<int64_t>(found.mapped()) : std::vector<int64_t>();
    order.assign(plan.begin(), plan.end() - std::min<ptrdiff_t>(2, std::ssize(plan)));
    std::vector<int> all(parameters_.size());
    std::iota(all.begin(), all.end(), 0);
    CHECK(std::is_permutation(all.begin(), all.end(), order.begin(), order.end()),
          "load_comm_hook_state: an order of ", order.size(),
          " parameters, expected one of the module's ", all.size(),
          "; load what a wrapper of the same module has saved");
    CHECK(options_.comm_hook,
          "load_comm_hook_state: gradients are averaged plainly; register the hook before");
    caps = {plan.end()[-2], plan.end()[-1]};
    buckets = plan_in_any_order(arenas_, order, caps).size();
  }
  std::vector<Tensor> saved(buckets);
  for (size_t b = 0; b < buckets; ++b)
    if (const auto found = kept.extract(std::to_string(b))) saved[b] = found.mapped();
  CHECK(kept.empty(), "load_comm_hook_state: '", kept.begin()->first, "' belongs to none of the ",
        buckets, " buckets; load what a wrapper of the same module has saved");

  // Nothing has changed until here, where all that is given has been understood.
  if (!state.empty()) plan_anew(order, caps);
  for (size_t b = 0; b < buckets; ++b) {
    Tensor& scratch = scratch_[b];
    const Tensor& x = saved[b];
    if (!x) {
      scratch = {};
      continue;
    }
    if (!scratch || scratch.numel() != x.numel() || scratch.dtype() != x.dtype()) {
      scratch = Tensor(group_.allocate_shared(x.nbytes(), buckets_[b].flat.device()), {x.numel()},
                       {1}, 0, x.dtype());
    }
    copy_(scratch, x.flatten());
  }
}

}  // namespace ringgrad
