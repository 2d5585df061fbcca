#include "ringgrad/distributed/other_collectives/broadcast_and_barrier.h"

#include <algorithm>

namespace ringgrad {

void broadcast(Messenger& messages, int root, std::span<std::byte> x, size_t segment_bytes) {
  const int size = messages.size();
  const int rank = messages.rank();
  const int next = (rank + 1) % size;
  for (size_t at = 0; at < x.size();) {
    const auto segment = x.subspan(at, std::min(segment_bytes, x.size() - at));
    if (rank != root) messages.recv((rank + size - 1) % size, segment);
    if (next != root) messages.send(next, segment);
    at += segment.size();
  }
  messages.finish();
}

// After the round with distance d, each rank knows that the 2d - 1 ranks to its left have arrived.
void barrier(Messenger& messages) {
  const int size = messages.size();
  const int rank = messages.rank();
  for (int distance = 1; distance < size; distance *= 2) {
    messages.send((rank + distance) % size, {});
    messages.recv((rank + size - distance) % size, {});
  }
  messages.finish();
}

}  // namespace ringgrad
