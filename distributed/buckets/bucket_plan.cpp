#include "ringgrad/distributed/buckets/bucket_plan.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

int64_t end_in(const ArenaRange& arena, size_t k) {
  return k + 1 < arena.offsets.size() ? arena.offsets[k + 1] : arena.grads.numel();
}

namespace {

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
    if (end == arena.offsets[k]) continue;  // a gradient without elements travels in no bucket
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

}  // namespace

std::vector<BucketRange> plan_buckets(const std::vector<ArenaRange>& arenas,
                                      const std::vector<int>& ready_order, const BucketCaps& caps) {
  CHECK(caps.first_bytes > 0 && caps.bytes > 0, "buckets: the caps are ", caps.first_bytes, " and ",
        caps.bytes, " bytes, expected at least 1");
  std::vector<BucketRange> buckets;
  for (size_t a = 0; a < arenas.size(); ++a) cut(arenas[a], static_cast<int>(a), caps, buckets);
  sort_by_readiness(buckets, ready_order);
  return buckets;
}

void sort_by_readiness(std::vector<BucketRange>& buckets, const std::vector<int>& ready_order) {
  std::vector<size_t> position(ready_order.size());
  for (size_t i = 0; i < ready_order.size(); ++i) position[ready_order[i]] = i;
  std::ranges::stable_sort(buckets, {}, [&](const BucketRange& bucket) {
    size_t last = 0;
    for (const int parameter : bucket.parameters) last = std::max(last, position[parameter]);
    return last;
  });
}

}  // namespace ringgrad
