// Where a program has worker threads, they make the batches of a pass ahead of the loop that takes
// them (data/workers/prefetcher.cpp).
#pragma once

#include <cstdint>
#include <functional>

#include "ringgrad/data/batch.h"

namespace ringgrad {

// Returns batch k of a pass. It is called with 0, 1, 2, …
using BatchNumber = std::function<Batch(int64_t k)>;

// Returns a function that gives the batches of `make`, of which there are `count`, in order. Up to
// `workers` threads call make(k), for several k at once. At most `ahead` batches that have not been
// taken are made or being made. If make(k) threw, the exception is rethrown at batch k. Throws
// Error in a forked child, which lacks the threads. When the last copy of the function is
// destroyed, batches being made are finished and discarded; the others are never begun. REQUIRES:
// workers and ahead are at least 1.
using Prefetch = BatchNumber (*)(int64_t count, int workers, int ahead, BatchNumber make);
// Set before main by data/workers/prefetcher.cpp; nullptr in a program without that file.
inline constinit Prefetch prefetch = nullptr;

}  // namespace ringgrad
