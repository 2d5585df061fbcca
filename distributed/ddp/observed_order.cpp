#include "ringgrad/distributed/ddp/observed_order.h"

#include <algorithm>
#include <numeric>

namespace ringgrad {
namespace {

// Returns the arena with its parameters in the order in which they become ready. Only the size of
// `grads` has a meaning.
ArenaRange in_ready_order(const ArenaRange& arena, const std::vector<size_t>& position) {
  std::vector<size_t> order(arena.parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t k) { return position[arena.parameters[k]]; });
  ArenaRange ready;
  int64_t end = 0;
  for (const size_t k : order) {
    ready.parameters.push_back(arena.parameters[k]);
    ready.offsets.push_back((end + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment);
    end = ready.offsets.back() + end_in(arena, k) - arena.offsets[k];
  }
  ready.grads = arena.grads.as_strided({end}, {0}, 0);
  return ready;
}

// Converts a bucket of the arena in ready order to ranges of the arena in memory. It is one range
// if both orders agree.
std::vector<BucketRange> in_memory(const BucketRange& bucket, const ArenaRange& ready,
                                   const ArenaRange& arena) {
  std::vector<BucketRange> pieces;
  for (size_t k = 0; k < arena.parameters.size(); ++k) {
    const int parameter = arena.parameters[k];
    if (!std::ranges::count(bucket.parameters, parameter)) continue;
    const auto found = std::ranges::find(ready.parameters, parameter);
    const int64_t shift = arena.offsets[k] - ready.offsets[found - ready.parameters.begin()];
    const int64_t begin = std::max(bucket.begin + shift, arena.offsets[k]);
    const int64_t end = std::min(bucket.end + shift, end_in(arena, k));
    if (begin >= end) continue;
    if (pieces.empty() || pieces.back().end != begin)
      pieces.push_back({bucket.arena, begin, end, {}});
    pieces.back().end = end;
    pieces.back().parameters.push_back(parameter);
  }
  return pieces;
}

}  // namespace

std::vector<BucketRange> plan_in_any_order(const std::vector<ArenaRange>& arenas,
                                           const std::vector<int>& ready_order,
                                           const BucketCaps& caps) {
  std::vector<size_t> position(ready_order.size());
  for (size_t i = 0; i < ready_order.size(); ++i) position[ready_order[i]] = i;
  std::vector<ArenaRange> ready;
  for (const ArenaRange& arena : arenas) ready.push_back(in_ready_order(arena, position));
  std::vector<BucketRange> buckets;
  for (const BucketRange& bucket : plan_buckets(ready, ready_order, caps))
    for (BucketRange& range : in_memory(bucket, ready[bucket.arena], arenas[bucket.arena]))
      buckets.push_back(std::move(range));
  sort_by_readiness(buckets, ready_order);
  return buckets;
}

}  // namespace ringgrad
