// How the ring collectives cut a buffer, on the CPU and on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringgrad {

struct Range {
  size_t begin, end;  // in elements
  size_t count() const { return end - begin; }
};

// i modulo n, for any i: the ring is a circle.
inline size_t wrapped(int64_t i, int64_t n) { return static_cast<size_t>((i % n + n) % n); }

// Chunk i of the n into which a range is cut, as equal as possible; the last one is the largest.
inline Range chunk_of(Range whole, int64_t n, int64_t i) {
  const size_t parts = static_cast<size_t>(n), c = wrapped(i, n);
  const size_t each = whole.count() / parts, left = whole.count() % parts;
  return {whole.begin + each * c + left * c / parts, whole.begin + each * (c + 1) + left * (c + 1) / parts};
}

}  // namespace ringgrad
