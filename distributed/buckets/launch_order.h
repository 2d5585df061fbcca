// Which buckets are averaged while backward still runs.
#pragma once

#include <cstddef>
#include <vector>

namespace ringgrad {

// pending[b]: how many of the parameters that reach into bucket b are not ready yet. One that
// reaches into these buckets now is: counts it, and returns those of them that have become
// complete, in their order.
std::vector<int> buckets_completed(std::vector<int>& pending,
                                   const std::vector<int>& buckets_of_parameter);

// Buckets 0 … next-1 have been launched: up to which one, not included, buckets may be now. Buckets
// go in their order, whatever became ready first: all ranks must issue the same collectives. The
// last one is not for now: there is nothing left to overlap it with when it is complete, so it is
// left to the end of backward, which executes it itself.
size_t launchable(const std::vector<int>& pending, size_t next);

}  // namespace ringgrad
