#include "ringgrad/distributed/collectives/ring.h"

#include "ringgrad/distributed/collectives/ring_parts.h"

namespace ringgrad {

using namespace ring;

// In step t of 2 (size-1), chunk rank - t - 2 comes in. In the first size-1 steps (reduce-scatter)
// this rank adds its own elements to the partial result that comes in; in the last of them chunk
// number `rank` is complete. In the remaining steps (all-gather) it comes in complete. In every
// step but the last a segment is sent on as soon as it is done, so the whole ring works on size
// chunks at a time.
void ring_all_reduce(Messenger& messages, void* x, size_t count, const ReduceFunctions& reduction,
                     size_t segment_bytes, bool slices_only) {
  const int size = messages.size();
  const int rank = messages.rank();
  const int last_reducing = size - 2;
  const int last = slices_only ? last_reducing : 2 * (size - 1) - 1;
  if (size == 1) return;
  const auto [left, right] = Neighbours(messages);
  const Range all{0, count};
  const Items items{static_cast<std::byte*>(x), reduction.item_bytes};
  // Partial results use the memory of their elements; wide ones, for 16-bit elements, use an array
  // of their own.
  const bool widens = reduction.wide_bytes != reduction.item_bytes && size > 2;
  const Buffer wide_memory = widens ? buffer(count * reduction.wide_bytes) : nullptr;
  const Items partial = widens ? Items{wide_memory.get(), reduction.wide_bytes} : items;

  const size_t largest = chunk_of(all, size, size - 1).count();
  const size_t segment = segment_items(segment_bytes, reduction, largest);
  // One piece of memory, because the C library may give two back to the system after each call.
  const Buffer memory = buffer(2 * segment * reduction.wide_bytes);
  std::byte* const incoming = memory.get();
  std::byte* const sum = incoming + segment * reduction.wide_bytes;

  for_each_turn(segments_in(largest, segment), last, [&](int step, size_t i) {
    const Range s = segment_of(chunk_of(all, size, rank - step - 2), segment, i);
    if (s.count() == 0) return;
    if (step < 0) return void(messages.send(right, items.part(s)));
    if (step > last_reducing) {
      messages.recv(left, items.part(s));
    } else {
      const size_t bytes = step == 0 ? reduction.item_bytes : reduction.wide_bytes;
      const auto combine = step == 0 ? reduction.combine_items : reduction.combine_wide;
      messages.recv(left, {incoming, s.count() * bytes});
      void* wide = step == last_reducing ? sum : partial.at(s.begin);
      combine(wide, items.at(s.begin), incoming, s.count());
      if (step == last_reducing) reduction.finish(items.at(s.begin), wide, s.count(), size);
    }
    if (step < last) messages.send(right, step < last_reducing ? partial.part(s) : items.part(s));
  });
  messages.finish();
}

}  // namespace ringgrad
