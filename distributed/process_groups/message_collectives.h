// Turns a call on tensors into the algorithm on bytes, if messages carry it.
#pragma once

#include <span>

#include "ringgrad/distributed/process_groups/host_process_group.h"

namespace ringgrad {

// Returns the bytes of a contiguous tensor; none if it is undefined.
std::span<std::byte> bytes_of(const Tensor& x);

// Executes a collective. REQUIRES: the frame describes it, and this rank has entered it.
void run_by_messages(const Collective& collective, const Frame& frame, Messenger& messages,
                     size_t segment_bytes);
// The same for all others than the ring, without which gradients are averaged. Set before main by
// the file that implements them (other_collectives/other_collectives.cpp); nullptr in a program
// without it.
inline constinit decltype(&run_by_messages) run_other_by_messages = nullptr;

}  // namespace ringgrad
