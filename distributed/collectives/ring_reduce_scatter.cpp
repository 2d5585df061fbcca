#include "ringgrad/distributed/collectives/ring.h"

#include <cstring>

#include "ringgrad/distributed/collectives/ring_parts.h"

namespace ringgrad {

using namespace ring;

// As the first half of ring_all_reduce (ring.cpp), but shifted by one, so that rank r ends up with chunk r. Partial
// results of step t leave from one of two buffers, which step t+2 uses again: by then the right neighbour has mostly
// received them.
void ring_reduce_scatter(Messenger& messages, void* y, const void* x, size_t count, const ReduceFunctions& reduction,
                         size_t segment_bytes) {
  const int size = messages.size(), rank = messages.rank(), last = size - 2;
  if (size == 1) {
    if (count > 0) std::memcpy(y, x, count * reduction.item_bytes);
    return;
  }
  const auto [left, right] = Neighbours(messages);
  const ConstItems items{static_cast<const std::byte*>(x), reduction.item_bytes};
  const Items result{static_cast<std::byte*>(y), reduction.item_bytes};
  const size_t segment = segment_items(segment_bytes, reduction, count);
  const Buffer incoming = buffer(segment * reduction.wide_bytes);
  const Buffer memory[2] = {buffer(count * reduction.wide_bytes), buffer(count * reduction.wide_bytes)};
  Transfer sent[2];

  const auto part = [&](int i) { return wrapped(i, size) * count; };
  for_each_segment({0, count}, segment, [&](Range s) {
    messages.send(right, items.part({part(rank - 1) + s.begin, part(rank - 1) + s.end}));
  });
  for (int step = 0; step <= last; ++step) {
    const Items partial{memory[step % 2].get(), reduction.wide_bytes};
    if (sent[step % 2].peer >= 0) messages.wait(sent[step % 2]);
    for_each_segment({0, count}, segment, [&](Range s) {
      const size_t bytes = step == 0 ? reduction.item_bytes : reduction.wide_bytes;
      const auto combine = step == 0 ? reduction.combine_items : reduction.combine_wide;
      messages.recv(left, {incoming.get(), s.count() * bytes});
      combine(partial.at(s.begin), items.at(part(rank - step - 2) + s.begin), incoming.get(), s.count());
      if (step < last)
        sent[step % 2] = messages.send(right, partial.part(s));
      else
        reduction.finish(result.at(s.begin), partial.at(s.begin), s.count(), size);
    });
  }
  messages.finish();
}

}  // namespace ringgrad
