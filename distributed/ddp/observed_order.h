// Buckets for the order in which gradients were seen to become ready.
#pragma once

#include "ringgrad/distributed/buckets/bucket_plan.h"

namespace ringgrad {

// Does what plan_buckets() does, whatever the order in memory. Parameters that become ready one
// after the other share a bucket up to the cap; if they are not neighbours in memory, the bucket is
// split into several.
std::vector<BucketRange> plan_in_any_order(const std::vector<ArenaRange>& arenas,
                                           const std::vector<int>& ready_order,
                                           const BucketCaps& caps);

}  // namespace ringgrad
