#include "ringgrad/distributed/collectives/run_collective.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/collectives/collectives.h"
#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad {
namespace {

std::span<std::byte> bytes_of(const Tensor& x) {
  const size_t items = x.defined() ? items_in(x) : 0;
  if (items == 0) return {};
  return {static_cast<std::byte*>(x.raw_data()), items * itemsize(x.dtype())};
}

// So few bytes that messages cost more than what is in them.
bool is_small(std::span<const std::byte> x, const Transport& transport) {
  return x.size() * static_cast<size_t>(transport.size() - 1) <= 32 << 10;
}

}  // namespace

size_t items_in(const Tensor& x) { return x.numel() == 0 ? 0 : static_cast<size_t>(x.flat_numel()); }

Frame frame_of(const Collective& c) {
  Frame frame;
  frame.operation = c.operation;
  frame.reduce_op = c.reduce_op;
  frame.step = c.options.step;
  frame.bucket = c.options.bucket;
  frame.layout = c.options.layout;
  if (c.operation != Operation::SendRecv) frame.root = c.root;
  if (const Tensor& x = c.part()) {
    frame.dtype = x.dtype();
    frame.count = items_in(x);
  }
  return frame;
}

std::string describe(const Collective& c) {
  return str(describe(frame_of(c)), c.options.about ? str(" (", *c.options.about, ")") : "");
}

void run_by_messages(const Collective& c, const Frame& frame, Transport& transport, const HostOptions& options) {
  Messenger messages(transport, frame, options.checksums);
  const size_t segment = options.segment_bytes, count = frame.count;
  const auto in = bytes_of(c.input), out = bytes_of(c.output);
  const auto how = [&]() -> const ReduceFunctions& { return reduction(name(c.operation), frame.dtype, c.reduce_op); };
  switch (c.operation) {
    case Operation::AllReduce:
      if (options.algorithm == AllReduceAlgorithm::Exchange ||
          (options.algorithm == AllReduceAlgorithm::Auto && is_small(out, transport)))
        exchange_all_reduce(messages, out.data(), count, how());
      else if (options.algorithm == AllReduceAlgorithm::GatherBroadcast)
        gather_broadcast_all_reduce(messages, out.data(), count, how());
      else
        ring_all_reduce(messages, out.data(), count, how(),
                        options.algorithm == AllReduceAlgorithm::Ring ? kWholeChunk : segment);
      break;
    case Operation::Broadcast:
      broadcast(messages, c.root, out, segment);
      break;
    case Operation::Reduce:
      reduce(messages, c.root, out.data(), in.data(), count, how(), segment);
      break;
    case Operation::Gather:
      gather(messages, c.root, out, in);
      break;
    case Operation::Scatter:
      scatter(messages, c.root, out, in);
      break;
    case Operation::AllGather:
      ring_all_gather(messages, out, in, segment);
      break;
    case Operation::ReduceScatter:
      ring_reduce_scatter(messages, out.data(), in.data(), count, how(), segment);
      break;
    case Operation::Barrier:
      barrier(messages);
      break;
    case Operation::SendRecv:
      if (c.input.defined())
        messages.send(c.root, in);
      else
        messages.recv(c.root, out);
      messages.finish();
      break;
    default:
      ASSERT(false);
  }
}

}  // namespace ringgrad
