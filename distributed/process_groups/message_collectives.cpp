#include "ringgrad/distributed/process_groups/message_collectives.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {

std::span<std::byte> bytes_of(const Tensor& x) {
  if (!x.defined() || x.numel() == 0) return {};
  return {static_cast<std::byte*>(x.raw_data()), x.nbytes()};
}

void run_by_messages(const Collective& c, const Frame& frame, Messenger& messages, size_t segment) {
  const auto way = static_cast<AllReduceAlgorithm>(frame.algorithm);
  const bool rings = way == AllReduceAlgorithm::Ring || way == AllReduceAlgorithm::SegmentedRing ||
                     (way == AllReduceAlgorithm::Auto && !run_other_by_messages);
  if (c.operation != Operation::AllReduce || !rings) {
    CHECK(run_other_by_messages, name(c.operation),
          ": this program is linked without it; link all of ringgrad::ringgrad");
    return run_other_by_messages(c, frame, messages, segment);
  }
  ring_all_reduce(messages, bytes_of(c.output).data(), frame.count,
                  reduction("all_reduce", frame.dtype, c.reduce_op),
                  way == AllReduceAlgorithm::Ring ? kWholeChunk : segment);
}

}  // namespace ringgrad
