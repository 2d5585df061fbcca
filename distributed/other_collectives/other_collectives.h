// The collectives without which gradients are averaged: they register themselves
// (process_groups/message_collectives.h), so a program can lack them.
#pragma once

#include <span>
#include <vector>

#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {

// y[count] on rank r becomes the reduction of the r-th of the `size` parts of all ranks' x[size ·
// count]. It takes size-1 steps, and each rank sends (size-1) · bytes(y). x does not change.
void ring_reduce_scatter(Messenger& messages, void* y, const void* x, size_t count,
                         const ReduceFunctions& reduction, size_t segment_bytes);

// places[r] becomes rank r's x, of as many bytes, on all ranks. size-1 steps; each rank sends all
// but one of them. x may be its own place.
void ring_all_gather(Messenger& messages, const std::vector<std::span<std::byte>>& places,
                     std::span<const std::byte> x, size_t segment_bytes);

// y[count] on the root becomes the reduction of all ranks' x[count]; y is used on the root alone,
// and may be x there. The chain begins at root+1 and ends at the root; each rank adds its own.
void reduce(Messenger& messages, int root, void* y, const void* x, size_t count,
            const ReduceFunctions& reduction, size_t segment_bytes);

// from[r] becomes rank r's to[rank]. Every rank sends to all others, beginning with its neighbour,
// so that no rank is sent everything at once. With `sender` or `receiver` only that rank's parts
// travel, and the other parts are not used: then it scatters, or gathers.
using Parts = std::vector<std::span<std::byte>>;
void exchange_parts(Messenger& messages, const Parts& from, const Parts& to, int sender = kAnyRank,
                    int receiver = kAnyRank);

// For a few bytes: every rank sends each other one that rank's chunk of x[count]. It reduces its
// own chunk in the order of ranks, as exchange_all_reduce() does (collectives.h).
void exchange_reduce_slices(Messenger& messages, void* x, size_t count,
                            const ReduceFunctions& reduction);

// The simplest all-reduce, kept for comparison: rank 0 collects all x[count], reduces them and
// sends the result to all ranks. Rank 0 receives and sends (size-1) · bytes(x), while the others
// wait.
void gather_broadcast_all_reduce(Messenger& messages, void* x, size_t count,
                                 const ReduceFunctions& reduction);

}  // namespace ringgrad
