// From a call on tensors to the algorithm on bytes.
#pragma once

#include "ringgrad/distributed/collectives/host_options.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {

// Elements from the first to the last in a dense tensor's storage.
size_t items_in(const Tensor& x);

// What a frame says of a collective wherever it is done; job, sequence and algorithm are a ring's own.
Frame frame_of(const Collective& collective);

// "all_reduce (average) of 1000 float32, step 12, bucket 1 (conv2.weight conv1.weight)"
std::string describe(const Collective& collective);

// Does the collective by messages between ranks. REQUIRES: frame describes it, and this rank has entered it.
void run_by_messages(const Collective& collective, const Frame& frame, Transport& transport,
                     const HostOptions& options);

}  // namespace ringgrad
