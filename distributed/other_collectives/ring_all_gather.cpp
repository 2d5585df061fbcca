#include "ringgrad/distributed/other_collectives/other_collectives.h"

#include <cstring>

#include "ringgrad/distributed/collectives/ring_parts.h"

namespace ringgrad {

using namespace ring;

// In step t a rank receives the place of rank - t - 1 complete, and sends it on at once. The last
// receiver of a place does not: its next rank is the owner.
void ring_all_gather(Messenger& messages, const std::vector<std::span<std::byte>>& places,
                     std::span<const std::byte> x, size_t segment_bytes) {
  const int size = messages.size();
  const int rank = messages.rank();
  const int last = size - 2;
  const auto [left, right] = Neighbours(messages);
  const auto place = [&](int i) { return places[wrapped(i, size)]; };
  if (!x.empty()) std::memmove(place(rank).data(), x.data(), x.size());
  if (size == 1) return;
  size_t largest = 0;
  for (const auto& one : places) largest = std::max(largest, one.size());
  for_each_turn(segments_in(largest, segment_bytes), last, [&](int step, size_t i) {
    const auto whole = place(rank - step - 1);
    const Range s = segment_of({0, whole.size()}, segment_bytes, i);
    if (s.count() == 0) return;
    if (step >= 0) messages.recv(left, whole.subspan(s.begin, s.count()));
    if (step < last) messages.send(right, whole.subspan(s.begin, s.count()));
  });
  messages.finish();
}

}  // namespace ringgrad
