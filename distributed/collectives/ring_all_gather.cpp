#include "ringgrad/distributed/collectives/ring.h"

#include <cstring>

#include "ringgrad/distributed/collectives/ring_parts.h"

namespace ringgrad {

using namespace ring;

// In step t the place of rank - t - 1 comes in, complete, and goes on at once: to all but its owner, who is next to the
// rank that gets it last.
void ring_all_gather(Messenger& messages, const std::vector<std::span<std::byte>>& places, std::span<const std::byte> x,
                     size_t segment_bytes) {
  const int size = messages.size(), rank = messages.rank();
  const auto [left, right] = Neighbours(messages);
  const auto place = [&](int i) { return places[wrapped(i, size)]; };
  if (!x.empty()) std::memmove(place(rank).data(), x.data(), x.size());
  const auto segments = [&](int i, auto body) {
    for_each_segment({0, place(i).size()}, segment_bytes, [&](Range s) { body(place(i).subspan(s.begin, s.count())); });
  };
  if (size > 1) segments(rank, [&](std::span<std::byte> s) { messages.send(right, s); });
  for (int step = 0; step < size - 1; ++step) {
    segments(rank - step - 1, [&](std::span<std::byte> s) {
      messages.recv(left, s);
      if (step < size - 2) messages.send(right, s);
    });
  }
  messages.finish();
}

}  // namespace ringgrad
