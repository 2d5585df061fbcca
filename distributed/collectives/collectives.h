// The collectives that are no ring: along a chain of ranks, or in pairs.
#pragma once

#include <span>

#include "ringgrad/core/kernels/reduction.h"
#include "ringgrad/distributed/collectives/messenger.h"

namespace ringgrad {

// x of the root replaces x on every rank. Segments flow along the chain root, root+1, …, so that
// all links carry them at the same time: about bytes(x) per link, whatever the number of ranks.
void broadcast(Messenger& messages, int root, std::span<std::byte> x, size_t segment_bytes);

// Returns when all ranks have called it. Dissemination (Hensgen, Finkel & Manber 1988): ⌈log2 size⌉
// rounds.
void barrier(Messenger& messages);

// For a few bytes: everybody sends its x[count] to everybody, and reduces them all itself, in the
// order of ranks. That takes as long as one message, where a ring takes 2 (size-1); but each rank
// sends (size-1) · bytes(x).
void exchange_all_reduce(Messenger& messages, void* x, size_t count,
                         const ReduceFunctions& reduction);

}  // namespace ringgrad
