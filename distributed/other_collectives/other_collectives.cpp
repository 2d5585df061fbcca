#include "ringgrad/distributed/other_collectives/other_collectives.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/distributed/other_collectives/broadcast_and_barrier.h"
#include "ringgrad/distributed/process_groups/message_collectives.h"

namespace ringgrad {

void reduce(Messenger& messages, int root, void* y, const void* x, size_t count,
            const ReduceFunctions& reduction, size_t segment_bytes) {
  const int size = messages.size();
  const int rank = messages.rank();
  const int first = (root + 1) % size;
  const int previous = (rank + size - 1) % size;
  const int next = (rank + 1) % size;
  const auto* items = static_cast<const std::byte*>(x);
  if (size == 1) {
    if (count > 0) std::memmove(y, x, count * reduction.item_bytes);
    return;
  }
  // The first rank sends its elements. All others send partial results, from two buffers in turn.
  const bool elements_come = previous == first;
  const size_t incoming_bytes = elements_come ? reduction.item_bytes : reduction.wide_bytes;
  const auto combine = elements_come ? reduction.combine_items : reduction.combine_wide;
  const size_t segment = std::max<size_t>(1, std::min(segment_bytes / reduction.wide_bytes, count));
  const auto incoming = std::make_unique<std::byte[]>(segment * reduction.wide_bytes);
  const auto memory = std::make_unique<std::byte[]>(2 * segment * reduction.wide_bytes);
  Transfer sent[2];

  for (size_t at = 0, turn = 0; at < count; at += segment, turn ^= 1) {
    const size_t n = std::min(segment, count - at);
    const std::byte* own = items + at * reduction.item_bytes;
    if (rank == first) {
      messages.send(next, {own, n * reduction.item_bytes});
      continue;
    }
    messages.recv(previous, {incoming.get(), n * incoming_bytes});
    std::byte* partial = memory.get() + turn * segment * reduction.wide_bytes;
    if (sent[turn].peer >= 0) messages.wait(sent[turn]);
    combine(partial, own, incoming.get(), n);
    if (rank == root)
      reduction.finish(static_cast<std::byte*>(y) + at * reduction.item_bytes, partial, n, size);
    else
      sent[turn] = messages.send(next, {partial, n * reduction.wide_bytes});
  }
  messages.finish();
}

void exchange_parts(Messenger& messages, const Parts& from, const Parts& to, int sender,
                    int receiver) {
  const int size = messages.size();
  const int rank = messages.rank();
  const auto goes = [&](int source, int target) {
    return (sender == kAnyRank || source == sender) && (receiver == kAnyRank || target == receiver);
  };
  if (goes(rank, rank) && !from[rank].empty())
    std::memmove(from[rank].data(), to[rank].data(), std::min(from[rank].size(), to[rank].size()));
  for (int distance = 1; distance < size; ++distance) {
    const int right = (rank + distance) % size;
    if (goes(rank, right)) messages.send(right, to[right]);
  }
  for (int distance = 1; distance < size; ++distance) {
    const int left = (rank + size - distance) % size;
    if (goes(left, rank)) messages.recv(left, from[left]);
  }
  messages.finish();
}

void gather_broadcast_all_reduce(Messenger& messages, void* x, size_t count,
                                 const ReduceFunctions& reduction) {
  const int size = messages.size();
  const std::span<std::byte> items(static_cast<std::byte*>(x), count * reduction.item_bytes);
  if (messages.rank() == 0) {
    std::vector<std::byte> received(items.size() * static_cast<size_t>(size - 1));
    std::vector<const void*> inputs{x};
    for (int r = 1; r < size; ++r) {
      const auto place =
          std::span(received).subspan(items.size() * static_cast<size_t>(r - 1), items.size());
      messages.recv(r, place);
      inputs.push_back(place.data());
    }
    reduction.reduce_all(&x, 1, inputs.data(), size, 0, count);
    for (int r = 1; r < size; ++r) messages.send(r, items);
  } else {
    messages.send(0, items);
    messages.recv(0, items);
  }
  messages.finish();
}

// -- as messages carry them -----------------------------------------------------------------------

namespace {

// Returns each rank's part: of counts[r] elements, or of equal size if `counts` is empty.
Parts parts_of(std::span<std::byte> whole, const std::vector<int64_t>& counts, int ranks,
               size_t item_bytes) {
  Parts parts;
  for (int r = 0; r < ranks; ++r) {
    const size_t bytes = counts.empty() ? whole.size() / static_cast<size_t>(ranks - r)
                                        : static_cast<size_t>(counts[r]) * item_bytes;
    parts.push_back(whole.first(bytes));
    whole = whole.subspan(bytes);
  }
  return parts;
}

std::vector<int64_t> slice_counts(int64_t numel, int ranks) {
  std::vector<int64_t> counts;
  for (int r = 0; r < ranks; ++r)
    counts.push_back(
        static_cast<int64_t>(chunk_of({0, static_cast<size_t>(numel)}, ranks, r).count()));
  return counts;
}

// Adds in the order in which run_by_messages() adds for an all-reduce of as many elements.
void reduce_in_slices(const Collective& c, const Frame& frame, Messenger& messages,
                      size_t segment) {
  const auto way = static_cast<AllReduceAlgorithm>(frame.algorithm);
  const auto x = bytes_of(c.output);
  const ReduceFunctions& how = reduction(name(c.operation), frame.dtype, c.reduce_op);
  const bool rings = way == AllReduceAlgorithm::Ring || way == AllReduceAlgorithm::SegmentedRing ||
                     (way == AllReduceAlgorithm::Auto && messages.size() > kMostDirect &&
                      !is_small(x.size(), messages.size()));
  if (!rings)
    return direct_all_reduce(messages, x.data(), frame.count, how, segment, /*slices_only=*/true);
  ring_all_reduce(messages, x.data(), frame.count, how,
                  way == AllReduceAlgorithm::Ring ? kWholeChunk : segment, /*slices_only=*/true);
}

void run_other(const Collective& c, const Frame& frame, Messenger& messages, size_t segment) {
  const int size = messages.size();
  const auto in = bytes_of(c.input);
  const auto out = bytes_of(c.output);
  const auto parts = [&](std::span<std::byte> whole, const std::vector<int64_t>& counts) {
    return parts_of(whole, counts, size, itemsize(frame.dtype));
  };
  const auto how = [&]() -> const ReduceFunctions& {
    return reduction(name(c.operation), frame.dtype, c.reduce_op);
  };
  switch (c.operation) {
    case Operation::AllReduce:
      all_reduce(messages, static_cast<AllReduceAlgorithm>(frame.algorithm), out.data(),
                 frame.count, how(), segment);
      break;
    case Operation::Broadcast: broadcast(messages, c.root, out, segment); break;
    case Operation::Barrier: barrier(messages); break;
    case Operation::Reduce:
      reduce(messages, c.root, out.data(), in.data(), frame.count, how(), segment);
      break;
    case Operation::Gather:
      exchange_parts(messages, parts(out, {}), Parts(size, in), kAnyRank, c.root);
      break;
    case Operation::Scatter:
      exchange_parts(messages, Parts(size, out), parts(in, {}), c.root);
      break;
    case Operation::AllGather:
      if (c.in_slices()) {
        const Parts slices = parts(out, slice_counts(c.output.numel(), size));
        ring_all_gather(messages, slices, slices[messages.rank()], segment);
        break;
      }
      ring_all_gather(messages, parts(out, c.output_counts), in, segment);
      break;
    case Operation::AllToAll:
      exchange_parts(messages, parts(out, c.output_counts), parts(in, c.input_counts));
      break;
    default:  // reduce_scatter
      if (c.in_slices()) return reduce_in_slices(c, frame, messages, segment);
      ring_reduce_scatter(messages, out.data(), in.data(), frame.count, how(), segment);
  }
}

BEFORE_MAIN(other_collectives, run_other_by_messages = run_other);

}  // namespace
}  // namespace ringgrad
