// Our ring all-reduce for ranks with a GPU each: distributed/collectives/ring.h's schedule, carried by ncclSend and
// ncclRecv.
#pragma once

#include <cstddef>
#include <vector>

#include "ringgrad/distributed/process_groups/nccl_communicator.h"

namespace ringgrad {

// In the body of communicator.queue(): queues on its stream what makes x[n], contiguous on the communicator's device,
// the reduction of all ranks' x, bit for bit the same everywhere and the same as ring_all_reduce() on the CPU; the host
// waits for nothing. A segment is added on `adding`, another stream of the device, while the next one travels.
// Returns the memory it works in, which must be kept until all of that is done: twice a chunk, in float32 for the
// 16-bit floats. Throws DTypeError for bool.
std::vector<Tensor> nccl_ring_all_reduce(NcclCommunicator& communicator, Stream adding, const Tensor& x, ReduceOp op,
                                         size_t segment_bytes);

}  // namespace ringgrad
