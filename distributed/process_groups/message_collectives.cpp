#include "ringgrad/distributed/process_groups/message_collectives.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/collectives/collectives.h"
#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {

std::span<std::byte> bytes_of(const Tensor& x) {
  if (!x.defined() || x.numel() == 0) return {};
  return {static_cast<std::byte*>(x.raw_data()),
          static_cast<size_t>(x.numel()) * itemsize(x.dtype())};
}

bool is_small(size_t bytes, int ranks) {
  return bytes * static_cast<size_t>(ranks - 1) <= 32 << 10;
}

void run_by_messages(const Collective& c, const Frame& frame, Messenger& messages, size_t segment) {
  const auto way = static_cast<AllReduceAlgorithm>(frame.algorithm);
  const auto x = bytes_of(c.output);
  if (c.operation == Operation::Broadcast) return broadcast(messages, c.root, x, segment);
  if (c.operation == Operation::Barrier) return barrier(messages);
  if (c.operation != Operation::AllReduce || way == AllReduceAlgorithm::GatherBroadcast) {
    CHECK(run_other_by_messages, name(c.operation),
          ": this program is linked without it; link all of ringgrad::ringgrad");
    return run_other_by_messages(c, frame, messages, segment);
  }
  const ReduceFunctions& how = reduction("all_reduce", frame.dtype, c.reduce_op);
  if (way == AllReduceAlgorithm::Exchange ||
      (way == AllReduceAlgorithm::Auto && is_small(x.size(), messages.size())))
    exchange_all_reduce(messages, x.data(), frame.count, how);
  else
    ring_all_reduce(messages, x.data(), frame.count, how,
                    way == AllReduceAlgorithm::Ring ? kWholeChunk : segment);
}

}  // namespace ringgrad
