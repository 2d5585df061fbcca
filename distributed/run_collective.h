// From a call on tensors to the algorithm on bytes.
#pragma once

#include "distributed/process_group.h"
#include "distributed/ring_options.h"
#include "distributed/transport.h"

namespace ringgrad {

// Elements from the first to the last in a dense tensor's storage.
size_t items_in(const Tensor& x);

// Does the collective by messages between ranks. REQUIRES: frame describes it, and this rank has entered it.
void run_by_messages(const Collective& collective, const Frame& frame, Transport& transport,
                     const RingOptions& options);

}  // namespace ringgrad
