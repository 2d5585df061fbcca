// The collectives that are no ring: along a chain of ranks, or in pairs.
#pragma once

#include <span>

#include "ringgrad/distributed/collectives/messenger.h"

namespace ringgrad {

// The root's x replaces x on every rank. Segments flow along the chain root, root+1, …, so that all
// links carry them at the same time: about bytes(x) per link, for any number of ranks.
void broadcast(Messenger& messages, int root, std::span<std::byte> x, size_t segment_bytes);

// Returns when all ranks have called it. Dissemination (Hensgen, Finkel & Manber 1988): ⌈log2 size⌉
// rounds.
void barrier(Messenger& messages);

}  // namespace ringgrad
