// Plans the sizes of buckets from the cost of an all-reduce and the times at which gradients are
// ready: `--bucket-mb auto`.
#pragma once

#include "ringgrad/distributed/ddp/reducer_options.h"
#include "ringgrad/distributed/planner/link_model.h"

namespace ringgrad {

// Returns the caps of the buckets that make a step shortest, for gradients of S bytes in all.
//
// Backward takes B seconds from its first gradient to its last, and k buckets of equal size are
// averaged one after the other. After backward at least the last bucket is left: α + βS/k. Each
// further bucket costs another α. If the link keeps up (βS < B), the sum α + βS/k + kα is least at
// k = √(βS/α). If it does not, it is busy to the end from the first bucket on, which is ready at
// B/k. The sum B/k + kα + βS is least at k = √(B/α). So
//   k = √(min(βS, B) / α),   each bucket S/k.
// Times are those of ReadyGradient (ddp/reducer_options.h). REQUIRES: at least one gradient.
BucketCaps plan_caps(const LinkModel& link, const std::vector<ReadyGradient>& gradients);

// Returns the time at which the last of these buckets has been averaged, if each is launched when
// it is ready, one after the other.
double finished(const LinkModel& link, const std::vector<ReadyGradient>& buckets);

// Collective: measures the group's link, which takes some ten milliseconds. Returns a planner that
// uses it, for DistributedDataParallelOptions::planner.
BucketPlanner plan_by_measuring(ProcessGroup& group);

}  // namespace ringgrad
