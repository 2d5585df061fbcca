// Plans the sizes of buckets from the cost of an all-reduce and the times at which gradients are
// ready: `--bucket-mb auto`.
#pragma once

#include "ringgrad/distributed/buckets/bucket_plan.h"
#include "ringgrad/distributed/planner/link_model.h"

namespace ringgrad {

// Backward takes B seconds from its first gradient to its last, of S bytes in all, and k buckets of
// equal size are averaged one after the other. What is left after backward is at least the last
// bucket's α + βS/k; each bucket more costs another α. Where the link keeps up (βS < B) the sum α +
// βS/k + kα is least at k = √(βS/α); where it does not, it is busy from the first bucket on, which
// is ready at B/k, to the end: B/k + kα + βS, least at k = √(B/α). So
//   k = √(min(βS, B) / α),   each bucket S/k.
// Times of gradients and caps as in bucket_plan.h. REQUIRES: at least one gradient.
BucketCaps plan_caps(const LinkModel& link, const std::vector<ReadyGradient>& gradients);

// Returns the time at which the last of these buckets has been averaged, if each is launched when
// it is ready, one after the other.
double finished(const LinkModel& link, const std::vector<ReadyGradient>& buckets);

// Collective: measures the group's link, in some ten milliseconds, and returns what plans by it,
// for DistributedDataParallelOptions::planner.
BucketPlanner plan_by_measuring(ProcessGroup& group);

}  // namespace ringgrad
