#include "ringgrad/distributed/buckets/bucket_plan.h"

#include <algorithm>
#include <numeric>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// Returns the end of the arena's k-th parameter, with the gap after it.
int64_t end_in(const ArenaRange& arena, size_t k) {
  return k + 1 < arena.offsets.size() ? arena.offsets[k + 1] : arena.grads.numel();
}

// Cuts one arena, tensors at cache lines; see plan_buckets().
void cut(const ArenaRange& arena, int index, const BucketCaps& caps,
         std::vector<BucketRange>& buckets) {
  const auto item = static_cast<int64_t>(itemsize(arena.grads.dtype()));
  BucketRange open{index, 0, 0, {}};
  const auto cap = [&] {
    const int64_t bytes = buckets.empty() ? caps.first_bytes : caps.bytes;
    return std::max<int64_t>(bytes / item / kArenaAlignment, 1) * kArenaAlignment;
  };
  const auto close = [&] {
    if (open.end > open.begin) buckets.push_back(open);
    open = {index, open.end, open.end, {}};
  };
  for (size_t k = 0; k < arena.parameters.size(); ++k) {
    const int64_t end = end_in(arena, k);
    if (end - open.begin > cap()) close();
    for (; end - open.begin > cap(); close()) {  // this tensor alone is larger than a bucket
      open.parameters = {arena.parameters[k]};
      open.end = open.begin + cap();
    }
    open.parameters.push_back(arena.parameters[k]);
    open.end = end;
  }
  close();
}

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

std::vector<BucketRange> plan_buckets(const std::vector<ArenaRange>& arenas,
                                      const std::vector<int>& ready_order, const BucketCaps& caps) {
  CHECK(caps.first_bytes > 0 && caps.bytes > 0, "buckets: the caps are ", caps.first_bytes, " and ",
        caps.bytes, " bytes, expected at least 1");
  std::vector<size_t> position(ready_order.size());
  for (size_t i = 0; i < ready_order.size(); ++i) position[ready_order[i]] = i;

  std::vector<BucketRange> buckets;
  std::vector<BucketRange> cuts;
  for (size_t a = 0; a < arenas.size(); ++a) {
    const ArenaRange ready = in_ready_order(arenas[a], position);
    const size_t before = cuts.size();
    cut(ready, static_cast<int>(a), caps, cuts);
    for (size_t c = before; c < cuts.size(); ++c)
      for (BucketRange& range : in_memory(cuts[c], ready, arenas[a]))
        buckets.push_back(std::move(range));
  }
  const auto ready_at = [&](const BucketRange& bucket) {
    size_t last = 0;
    for (const int parameter : bucket.parameters) last = std::max(last, position[parameter]);
    return last;
  };
  std::ranges::stable_sort(buckets, {}, ready_at);
  return buckets;
}

}  // namespace ringgrad
