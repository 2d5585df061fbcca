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

// The order in which a ring does its steps 0 … last, and -1, in which a rank sends what is its own, on the segments of
// a chunk: body(step, index of the segment). Each step follows the one before at a distance of kBehind segments: long
// enough for them to arrive meanwhile, and so short that what is received, added up, checked and sent on stays in the
// cache. (64 MiB on two ranks by TCP take the cores 4 % less time than step after step, and 12 % less with checksums.)
template <class Body>
void for_each_turn(size_t segments, int last, Body body) {
  constexpr size_t kBehind = 3;
  const size_t turns = segments + kBehind * static_cast<size_t>(last + 1);
  for (size_t turn = 0; turn < turns; ++turn)
    for (int step = -1; step <= last; ++step) {
      const size_t begun = kBehind * static_cast<size_t>(step + 1);
      if (turn >= begun && turn - begun < segments) body(step, turn - begun);
    }
}

size_t segments_in(size_t chunk, size_t segment) { return chunk / segment + (chunk % segment > 0 ? 1 : 0); }

// Segment i of a chunk, which may be shorter than others and lack the last ones: those are empty.
Range segment_of(Range chunk, size_t segment, size_t i) {
  const auto edge = [&](size_t n) { return std::min(chunk.end, chunk.begin + std::min(n * segment, chunk.count())); };
  return {edge(i), edge(i + 1)};
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
// works on size chunks at a time.
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

  const size_t largest = chunk_of(all, size, size - 1).count();
  const size_t segment = segment_items(segment_bytes, reduction, largest);
  const Buffer incoming = buffer(segment * reduction.wide_bytes), sum = buffer(segment * reduction.wide_bytes);

  for_each_turn(segments_in(largest, segment), last, [&](int step, size_t i) {
    const Range s = segment_of(chunk_of(all, size, rank - step - 1), segment, i);
    if (s.count() == 0) return;
    if (step < 0) return void(messages.send(right, items.part(s)));
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
  const size_t segment = segment_items(segment_bytes, reduction, count), segments = segments_in(count, segment);
  const Buffer incoming = buffer(segment * reduction.wide_bytes);
  const Buffer memory[2] = {buffer(count * reduction.wide_bytes), buffer(count * reduction.wide_bytes)};
  std::vector<Transfer> sent[2] = {std::vector<Transfer>(segments), std::vector<Transfer>(segments)};

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

void ring_all_gather(Messenger& messages, const std::vector<std::span<std::byte>>& places, std::span<const std::byte> x,
                     size_t segment_bytes) {
  const int size = messages.size(), rank = messages.rank(), last = size - 2;
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
