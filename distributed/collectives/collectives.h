// The collectives that are no ring: along a chain of ranks, directly with a root, or in pairs.
#pragma once

#include <span>
#include <vector>

#include "ringgrad/core/kernels/reduction.h"
#include "ringgrad/distributed/collectives/messenger.h"

namespace ringgrad {

// x of the root replaces x on every rank. Segments flow along the chain root, root+1, …, so that
// all links carry them at the same time: about bytes(x) per link, whatever the number of ranks.
void broadcast(Messenger& messages, int root, std::span<std::byte> x, size_t segment_bytes);

// y[count] on the root becomes the reduction of all ranks' x[count]; y is used on the root alone,
// and may be x there. The chain begins at root+1 and ends at the root; each rank adds its own.
void reduce(Messenger& messages, int root, void* y, const void* x, size_t count,
            const ReduceFunctions& reduction, size_t segment_bytes);

// y[size · bytes] on the root becomes the concatenation of all ranks' x[bytes]; y is used on the
// root alone.
void gather(Messenger& messages, int root, std::span<std::byte> y, std::span<const std::byte> x);

// y[bytes] on rank r becomes the r-th of the `size` parts of the root's x[size · bytes]; x is used
// on the root alone.
void scatter(Messenger& messages, int root, std::span<std::byte> y, std::span<const std::byte> x);

// from[r] becomes rank r's to[rank]. Everybody sends to everybody, beginning with the neighbour, so
// that no rank is sent everything at once.
void all_to_all(Messenger& messages, const std::vector<std::span<std::byte>>& from,
                const std::vector<std::span<std::byte>>& to);

// Returns when all ranks have called it. Dissemination (Hensgen, Finkel & Manber 1988): ⌈log2 size⌉
// rounds.
void barrier(Messenger& messages);

// The first all-reduce everybody writes, kept to compare: rank 0 collects all x[count], reduces
// them and sends the result back to everybody. Rank 0 receives and sends (size-1) · bytes(x), while
// the others wait.
void gather_broadcast_all_reduce(Messenger& messages, void* x, size_t count,
                                 const ReduceFunctions& reduction);

// For a few bytes: everybody sends its x[count] to everybody, and reduces them all itself, in the
// order of ranks. That takes as long as one message, where a ring takes 2 (size-1); but each rank
// sends (size-1) · bytes(x).
void exchange_all_reduce(Messenger& messages, void* x, size_t count,
                         const ReduceFunctions& reduction);

}  // namespace ringgrad
