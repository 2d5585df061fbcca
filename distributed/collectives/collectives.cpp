#include "ringgrad/distributed/collectives/collectives.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

namespace ringgrad {

void broadcast(Messenger& messages, int root, std::span<std::byte> x, size_t segment_bytes) {
  const int size = messages.size(), rank = messages.rank(), next = (rank + 1) % size;
  for (size_t at = 0; at < x.size();) {
    const auto segment = x.subspan(at, std::min(segment_bytes, x.size() - at));
    if (rank != root) messages.recv((rank + size - 1) % size, segment);
    if (next != root) messages.send(next, segment);
    at += segment.size();
  }
  messages.finish();
}

void reduce(Messenger& messages, int root, void* y, const void* x, size_t count,
            const ReduceFunctions& reduction, size_t segment_bytes) {
  const int size = messages.size(), rank = messages.rank(), first = (root + 1) % size;
  const int previous = (rank + size - 1) % size, next = (rank + 1) % size;
  const auto* items = static_cast<const std::byte*>(x);
  if (size == 1) {
    if (count > 0) std::memmove(y, x, count * reduction.item_bytes);
    return;
  }
  // What the first rank sends are its elements; what all others send are partial results, from two
  // buffers in turn.
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

void gather(Messenger& messages, int root, std::span<std::byte> y, std::span<const std::byte> x) {
  if (messages.rank() == root) {
    for (int r = 0; r < messages.size(); ++r) {
      const auto place = y.subspan(static_cast<size_t>(r) * x.size(), x.size());
      if (r != root)
        messages.recv(r, place);
      else if (!x.empty())
        std::memmove(place.data(), x.data(), place.size_bytes());
    }
  } else {
    messages.send(root, x);
  }
  messages.finish();
}

void scatter(Messenger& messages, int root, std::span<std::byte> y, std::span<const std::byte> x) {
  if (messages.rank() == root) {
    for (int r = 0; r < messages.size(); ++r) {
      const auto part = x.subspan(static_cast<size_t>(r) * y.size(), y.size());
      if (r != root)
        messages.send(r, part);
      else if (!y.empty())
        std::memmove(y.data(), part.data(), part.size_bytes());
    }
  } else {
    messages.recv(root, y);
  }
  messages.finish();
}

void all_to_all(Messenger& messages, const std::vector<std::span<std::byte>>& from,
                const std::vector<std::span<std::byte>>& to) {
  const int size = messages.size(), rank = messages.rank();
  if (!from[rank].empty())
    std::memmove(from[rank].data(), to[rank].data(), std::min(from[rank].size(), to[rank].size()));
  for (int distance = 1; distance < size; ++distance) {
    const int right = (rank + distance) % size;
    messages.send(right, to[right]);
  }
  for (int distance = 1; distance < size; ++distance) {
    const int left = (rank + size - distance) % size;
    messages.recv(left, from[left]);
  }
  messages.finish();
}

// After the round with distance d, each rank knows that the 2d ranks to its left have arrived.
void barrier(Messenger& messages) {
  const int size = messages.size(), rank = messages.rank();
  for (int distance = 1; distance < size; distance *= 2) {
    messages.send((rank + distance) % size, {});
    messages.recv((rank + size - distance) % size, {});
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

void exchange_all_reduce(Messenger& messages, void* x, size_t count,
                         const ReduceFunctions& reduction) {
  const int size = messages.size(), rank = messages.rank();
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
