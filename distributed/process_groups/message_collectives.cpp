#include "ringgrad/distributed/process_groups/message_collectives.h"

#include <vector>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/collectives/collectives.h"
#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {
namespace {

// A rank's parts of it: of so many elements, or all alike.
std::vector<std::span<std::byte>> parts_of(std::span<std::byte> whole,
                                           const std::vector<int64_t>& counts, int ranks,
                                           size_t item_bytes) {
  std::vector<std::span<std::byte>> parts;
  for (int r = 0; r < ranks; ++r) {
    const size_t bytes = counts.empty() ? whole.size() / static_cast<size_t>(ranks - r)
                                        : static_cast<size_t>(counts[r]) * item_bytes;
    parts.push_back(whole.first(bytes));
    whole = whole.subspan(bytes);
  }
  return parts;
}

}  // namespace

std::span<std::byte> bytes_of(const Tensor& x) {
  if (!x.defined() || x.numel() == 0) return {};
  return {static_cast<std::byte*>(x.raw_data()),
          static_cast<size_t>(x.numel()) * itemsize(x.dtype())};
}

bool is_small(std::span<const std::byte> x, int ranks) {
  return x.size() * static_cast<size_t>(ranks - 1) <= 32 << 10;
}

void run_by_messages(const Collective& c, const Frame& frame, Messenger& messages, size_t segment) {
  const size_t count = frame.count;
  const auto in = bytes_of(c.input), out = bytes_of(c.output);
  const auto how = [&]() -> const ReduceFunctions& {
    return reduction(name(c.operation), frame.dtype, c.reduce_op);
  };
  const auto parts = [&](std::span<std::byte> whole, const std::vector<int64_t>& counts) {
    return parts_of(whole, counts, messages.size(), itemsize(frame.dtype));
  };
  switch (c.operation) {
    case Operation::Broadcast: broadcast(messages, c.root, out, segment); break;
    case Operation::Reduce:
      reduce(messages, c.root, out.data(), in.data(), count, how(), segment);
      break;
    case Operation::Gather: gather(messages, c.root, out, in); break;
    case Operation::Scatter: scatter(messages, c.root, out, in); break;
    case Operation::AllGather:
      ring_all_gather(messages, parts(out, c.output_counts), in, segment);
      break;
    case Operation::AllToAll:
      all_to_all(messages, parts(out, c.output_counts), parts(in, c.input_counts));
      break;
    case Operation::ReduceScatter:
      ring_reduce_scatter(messages, out.data(), in.data(), count, how(), segment);
      break;
    case Operation::Barrier: barrier(messages); break;
    default: ASSERT(false);
  }
}

}  // namespace ringgrad
