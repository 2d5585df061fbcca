#include "ringgrad/distributed/collectives/ring.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace ringgrad {
namespace {

struct Neighbours {
  int left, right;
  explicit Neighbours(const Messenger& m)
      : left((m.rank() + m.size() - 1) % m.size()), right((m.rank() + 1) % m.size()) {}
};

template <class Body>
void for_each_segment(Range chunk, size_t segment, Body body) {
  for (size_t at = chunk.begin; at < chunk.end; at += segment) body(Range{at, std::min(chunk.end, at + segment)});
}

// An untyped array of elements.
template <class Byte>
struct Array {
  Byte* data;
  size_t item_bytes;
  Byte* at(size_t i) const { return data + i * item_bytes; }
  std::span<Byte> part(Range r) const { return {at(r.begin), r.count() * item_bytes}; }
};
using Items = Array<std::byte>;
using ConstItems = Array<const std::byte>;

using Buffer = std::unique_ptr<std::byte[]>;
Buffer buffer(size_t bytes) { return std::make_unique_for_overwrite<std::byte[]>(bytes); }

size_t segment_items(size_t segment_bytes, const ReduceFunctions& reduction, size_t chunk) {
  return std::max<size_t>(1, std::min(segment_bytes / reduction.wide_bytes, chunk));
}

}  // namespace

// Step t of 2 (size-1): the chunk that comes in is rank - t - 1. In the first size-1 steps (reduce-scatter) its partial
// result grows by this rank's own elements; in the last of them it is complete. In the remaining steps (all-gather) it
// comes in complete. In every step but the last a segment is sent on as soon as it is done, so that the whole ring
// works on size chunks and a rank is never idle for longer than one segment.
void ring_all_reduce(Messenger& messages, void* x, size_t count, const ReduceFunctions& reduction,
                     size_t segment_bytes) {
  const int size = messages.size(), rank = messages.rank(), last_reducing = size - 2, last = 2 * (size - 1) - 1;
  if (size == 1) return;
  const auto [left, right] = Neighbours(messages);
  const Range all{0, count};
  const Items items{static_cast<std::byte*>(x), reduction.item_bytes};
  // Partial results lie where their elements lie; wide ones of 16-bit elements in an array of their own.
  const bool widens = reduction.wide_bytes != reduction.item_bytes && size > 2;
  const Buffer wide_memory = widens ? buffer(count * reduction.wide_bytes) : nullptr;
  const Items partial = widens ? Items{wide_memory.get(), reduction.wide_bytes} : items;

  const size_t segment = segment_items(segment_bytes, reduction, chunk_of(all, size, size - 1).count());
  const Buffer incoming = buffer(segment * reduction.wide_bytes), sum = buffer(segment * reduction.wide_bytes);

  for_each_segment(chunk_of(all, size, rank), segment, [&](Range s) { messages.send(right, items.part(s)); });
  for (int step = 0; step <= last; ++step) {
    for_each_segment(chunk_of(all, size, rank - step - 1), segment, [&](Range s) {
      if (step > last_reducing) {
        messages.recv(left, items.part(s));
      } else {
        const size_t bytes = step == 0 ? reduction.item_bytes : reduction.wide_bytes;
        const auto combine = step == 0 ? reduction.combine_items : reduction.combine_wide;
        messages.recv(left, {incoming.get(), s.count() * bytes});
        void* wide = step == last_reducing ? sum.get() : partial.at(s.begin);
        combine(wide, items.at(s.begin), incoming.get(), s.count());
        if (step == last_reducing) reduction.finish(items.at(s.begin), wide, s.count(), size);
      }
      if (step < last) messages.send(right, step < last_reducing ? partial.part(s) : items.part(s));
    });
  }
  messages.finish();
}

// The same reduce-scatter, shifted by one so that rank r ends up with chunk r. Partial results of step t leave from one
// of two buffers, which step t+2 uses again: by then the right neighbour has mostly received them.
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
