// The ring collectives: ranks form a circle, and all of them send to the right and receive from the
// left, at the same time.
//
// The buffer is cut into `size` *chunks*, one per rank, as equal as possible. A chunk travels in
// *segments*, so that one travels while another one is reduced. left and right are a rank's
// neighbours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ringgrad/core/kernels/reduction.h"
#include "ringgrad/distributed/collectives/messenger.h"

namespace ringgrad {

inline constexpr size_t kWholeChunk = SIZE_MAX;  // as segment_bytes: no segments

// x[count] on every rank becomes the reduction of all ranks' x, bit for bit the same everywhere.
// Patarasuk & Yuan 2009: reduce-scatter, then all-gather; 2 (size-1) steps, and each rank sends
// 2 (size-1)/size · bytes(x), which is the least possible. (For 16-bit floats and more than two
// ranks partial sums travel as float32.) With `slices_only` it ends after the
// reduce-scatter: chunk number rank() is complete, and the others hold nothing of use.
void ring_all_reduce(Messenger& messages, void* x, size_t count, const ReduceFunctions& reduction,
                     size_t segment_bytes, bool slices_only = false);

// One chunk of a buffer. The ring collectives cut buffers in the same way on the CPU and on GPUs.
struct Range {
  // in elements
  size_t begin;
  size_t end;
  size_t count() const { return end - begin; }
};

// i modulo n, for any i: the ring is a circle.
inline size_t wrapped(int64_t i, int64_t n) { return static_cast<size_t>((i % n + n) % n); }

// Chunk i of the n into which a range is cut, as equal as possible; the last one is the largest.
inline Range chunk_of(Range whole, int64_t n, int64_t i) {
  const size_t parts = static_cast<size_t>(n);
  const size_t c = wrapped(i, n);
  const size_t each = whole.count() / parts;
  const size_t left = whole.count() % parts;
  return {whole.begin + each * c + left * c / parts,
          whole.begin + each * (c + 1) + left * (c + 1) / parts};
}

}  // namespace ringgrad
