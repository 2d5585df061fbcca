// What the ring collectives are written with.
#pragma once

#include <algorithm>
#include <memory>

#include "ringgrad/distributed/collectives/ring.h"

namespace ringgrad::ring {

// Whom a rank receives from, and whom it sends to.
struct Neighbours {
  int left, right;
  explicit Neighbours(const Messenger& m)
      : left((m.rank() + m.size() - 1) % m.size()), right((m.rank() + 1) % m.size()) {}
};

// body(segment) for each of a chunk, in their order; all ranks cut it alike.
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
inline Buffer buffer(size_t bytes) { return std::make_unique_for_overwrite<std::byte[]>(bytes); }

// Elements of a segment, whose partial results take at most so many bytes.
inline size_t segment_items(size_t segment_bytes, const ReduceFunctions& reduction, size_t chunk) {
  return std::max<size_t>(1, std::min(segment_bytes / reduction.wide_bytes, chunk));
}

}  // namespace ringgrad::ring
