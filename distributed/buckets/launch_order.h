// Decides which buckets are averaged while backward still runs.
#pragma once

#include <cstddef>
#include <vector>

namespace ringgrad {

// pending[b] says how many of the parameters that reach into bucket b are not ready yet. A
// parameter that reaches into these buckets has become ready. Counts it, and returns the buckets
// that are complete now, in their order.
std::vector<int> buckets_completed(std::vector<int>& pending,
                                   const std::vector<int>& buckets_of_parameter);

// Buckets 0 … next-1 have been launched. Returns the end (not included) of the range that may be
// launched now. Buckets are launched in their order, whichever becomes ready first, because all
// ranks must issue the same collectives. The last bucket is never included: when it is complete,
// backward has ended, and nothing is left to overlap with. launch_rest() executes it on backward's
// own thread, since another one would have to be woken first.
size_t launchable(const std::vector<int>& pending, size_t next);

}  // namespace ringgrad
