#include "ringgrad/distributed/other_collectives/other_collectives.h"

#include <cstring>

#include "ringgrad/distributed/collectives/ring_parts.h"

namespace ringgrad {

using namespace ring;

// As the first half of ring_all_reduce (ring.cpp): rank r ends up with chunk r. Partial results of
// step t leave from one of two buffers, which step t+2 uses again: by then the right neighbour has
// mostly received them.
void ring_reduce_scatter(Messenger& messages, void* y, const void* x, size_t count,
                         const ReduceFunctions& reduction, size_t segment_bytes) {
  const int size = messages.size();
  const int rank = messages.rank();
  const int last = size - 2;
  if (size == 1) {
    if (count > 0) std::memcpy(y, x, count * reduction.item_bytes);
    return;
  }
  const auto [left, right] = Neighbours(messages);
  const ConstItems items{static_cast<const std::byte*>(x), reduction.item_bytes};
  const Items result{static_cast<std::byte*>(y), reduction.item_bytes};
  const size_t segment = segment_items(segment_bytes, reduction, count);
  const size_t segments = segments_in(count, segment);
  const Buffer incoming = buffer(segment * reduction.wide_bytes);
  const Buffer memory[2] = {buffer(count * reduction.wide_bytes),
                            buffer(count * reduction.wide_bytes)};
  std::vector<Transfer> sent[2] = {std::vector<Transfer>(segments),
                                   std::vector<Transfer>(segments)};

  for_each_turn(segments, last, [&](int step, size_t i) {
    const Range s = segment_of({0, count}, segment, i);
    const size_t chunk = wrapped(rank - step - 2, size) * count;
    const Range own{chunk + s.begin, chunk + s.end};
    if (step < 0) return void(messages.send(right, items.part(own)));
    const Items partial{memory[step % 2].get(), reduction.wide_bytes};
    Transfer& before = sent[step % 2][i];
    if (before.peer >= 0) messages.wait(before);
    const size_t bytes = step == 0 ? reduction.item_bytes : reduction.wide_bytes;
    const auto combine = step == 0 ? reduction.combine_items : reduction.combine_wide;
    messages.recv(left, {incoming.get(), s.count() * bytes});
    combine(partial.at(s.begin), items.at(own.begin), incoming.get(), s.count());
    if (step < last)
      before = messages.send(right, partial.part(s));
    else
      reduction.finish(result.at(s.begin), partial.at(s.begin), s.count(), size);
  });
  messages.finish();
}

}  // namespace ringgrad
