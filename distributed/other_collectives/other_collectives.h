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

// All-reduces in which an element is added in the order of ranks, always by one addition after the
// other. So all of them give the same bits, and so do sums in shared memory.

// The simplest one, kept for comparison: rank 0 collects all x[count], reduces them and sends the
// result to all ranks. Rank 0 receives and sends (size-1) · bytes(x), while the others wait.
void gather_broadcast_all_reduce(Messenger& messages, void* x, size_t count,
                                 const ReduceFunctions& reduction);

// Every rank sends its x[count] to all others, and reduces all of them itself. That takes as long
// as one message, while a ring takes 2 (size-1). But each rank sends (size-1) · bytes(x). Two ranks
// cannot do better, and for more of them it is the fastest for a few bytes.
void exchange_all_reduce(Messenger& messages, void* x, size_t count,
                         const ReduceFunctions& reduction, size_t segment_bytes);

// Every rank reduces one of `size` slices: all others send it theirs, and it sends them the result.
// That takes as long as two messages, and each rank sends 2 (size-1)/size · bytes(x), which is the
// least possible. But each rank receives from all others at once. With `slices_only` it keeps the
// result of its own slice, and sends it to nobody.
void direct_all_reduce(Messenger& messages, void* x, size_t count, const ReduceFunctions& reduction,
                       size_t segment_bytes, bool slices_only = false);

// Returns true for so few bytes that messages cost more than their contents.
inline bool is_small(size_t bytes, int ranks) {
  return bytes * static_cast<size_t>(ranks - 1) <= 32 << 10;
}

// With more ranks too many would send to one at the same time.
inline constexpr int kMostDirect = 16;

// Auto chooses what is fastest, and asks a clock only if it cannot change bits.
void all_reduce(Messenger& messages, AllReduceAlgorithm way, void* x, size_t count,
                const ReduceFunctions& reduction, size_t segment_bytes);

}  // namespace ringgrad
