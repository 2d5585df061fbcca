#include "ringgrad/distributed/collectives/collectives.h"

#include <algorithm>
#include <memory>
#include <vector>

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

// After the round with distance d, each rank knows that the 2d ranks to its left have arrived.
void barrier(Messenger& messages) {
  const int size = messages.size();
  const int rank = messages.rank();
  for (int distance = 1; distance < size; distance *= 2) {
    messages.send((rank + distance) % size, {});
    messages.recv((rank + size - distance) % size, {});
  }
  messages.finish();
}

void exchange_all_reduce(Messenger& messages, void* x, size_t count,
                         const ReduceFunctions& reduction) {
  const int size = messages.size();
  const int rank = messages.rank();
  const std::span<std::byte> items(static_cast<std::byte*>(x), count * reduction.item_bytes);
  const auto received =
      std::make_unique_for_overwrite<std::byte[]>(items.size() * static_cast<size_t>(size));
  for (int distance = 1; distance < size; ++distance)
    messages.send((rank + distance) % size, items);
  std::vector<const void*> inputs;
  for (int r = 0; r < size; ++r) {
    std::byte* place = received.get() + items.size() * static_cast<size_t>(r);
    if (r != rank) messages.recv(r, {place, items.size()});
    inputs.push_back(r == rank ? x : place);
  }
  messages.finish();
  reduction.reduce_all(&x, 1, inputs.data(), size, 0, count);
}

}  // namespace ringgrad
