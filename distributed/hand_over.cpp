#include "ringgrad/distributed/hand_over.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/group_values.h"

namespace ringgrad {
namespace {

int64_t hash_of_state(const TrainingState& state) {
  std::vector<uint64_t> hashes{hash_of(state.words.data(), state.words.size())};
  for (const auto& [name, tensor] : state.tensors) {
    const Tensor x = as_contiguous(tensor);
    hashes.push_back(hash_of(x.raw_data(), x.nbytes()));
  }
  return static_cast<int64_t>(hash_of(hashes.data(), hashes.size() * sizeof(uint64_t)));
}

}  // namespace

TrainingState hand_over(ProcessGroup& group, TrainingState own) {
  check_same_signature(group, "hand_over", own.tensors);
  const auto told = all_gather_values<int64_t>(group, {own.step, hash_of_state(own)});
  const auto step_of = [&](int rank) { return told[static_cast<size_t>(2 * rank)]; };
  const auto hash_of_rank = [&](int rank) { return told[static_cast<size_t>(2 * rank + 1)]; };
  int first = 0;  // the lowest of the most advanced ranks
  bool all_are_there = true;
  for (int r = 0; r < group.size(); ++r) {
    all_are_there &= step_of(r) == step_of(0);
    if (step_of(r) > step_of(first)) first = r;
  }
  for (int r = first; r < group.size(); ++r)
    if (step_of(r) == step_of(first) && hash_of_rank(r) != hash_of_rank(first))
      disagree(group,
               str("hand_over: ranks ", first, " and ", r, " have both done ", step_of(first),
                   " steps, and have other states; something changed one of them only"));
  if (all_are_there) return own;
  // A rank that is behind keeps its state until it has received all of the new one: the others may
  // die before.
  const bool behind = own.step < step_of(first);
  const std::string words = broadcast_text(group, own.words, first);
  std::vector<Tensor> received;
  for (const auto& [name, tensor] : own.tensors) {
    received.push_back(behind ? empty(tensor.shape(), {tensor.dtype(), tensor.device()})
                              : as_contiguous(tensor));
    group.broadcast(received.back(), first).wait();
  }
  if (!behind) return own;
  for (size_t i = 0; i < received.size(); ++i) copy_(own.tensors[i].second, received[i]);
  own.step = step_of(first);
  own.words = words;
  return own;
}

}  // namespace ringgrad
