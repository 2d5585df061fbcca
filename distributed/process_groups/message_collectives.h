// From a call on tensors to the algorithm on bytes, where messages carry it.
#pragma once

#include <span>

#include "ringgrad/distributed/process_groups/host_process_group.h"

namespace ringgrad {

// Those of a contiguous tensor; none where it is undefined.
std::span<std::byte> bytes_of(const Tensor& x);

// So few bytes that messages cost more than what is in them.
bool is_small(std::span<const std::byte> x, int ranks);

// All but all_reduce. REQUIRES: the frame describes the collective, and this rank has entered it.
void run_by_messages(const Collective& collective, const Frame& frame, Messenger& messages,
                     size_t segment_bytes);

}  // namespace ringgrad
