// What the batch normalisation kernels share: how the elements of each channel lie in memory, and sums per channel that
// read memory once and do not depend on the number of threads. Private to core/cpu.
#pragma once

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cpu {

// x [N, C, …] as rows of memory: `rows` of them per image, each `length` elements in which `width` channels alternate.
// Contiguous: one row per channel, width 1. Channel-blocked: one row per block, width 16; channels beyond C hold zeros.
struct ChannelRows {
  int64_t images, rows, length, width;

  explicit ChannelRows(const Tensor& x) : images(x.shape()[0]), rows(x.shape()[1]), length(1), width(1) {
    for (int d = 2; d < x.dim(); ++d) length *= x.shape()[d];
    if (x.is_channel_blocked()) {
      width = kChannelBlock;
      rows = ceil_div(rows, width);
      length *= width;
    }
  }
  int64_t channels() const { return rows * width; }
  int64_t count() const { return images * length / width; }  // elements of one channel
};

// Whether t can be walked in step with x: every tensor of a call lies in memory the same way.
inline bool lies_like(const Tensor& t, const Tensor& x) {
  return t.shape() == x.shape() && t.dtype() == x.dtype() && t.layout() == x.layout() &&
         (t.is_channel_blocked() || t.is_contiguous());
}

// Calls run.operator()<width>() so that the inner loops know how many channels alternate.
template <class Run>
void visit_width(int64_t width, Run&& run) {
  width == 1 ? run.template operator()<1>() : run.template operator()<kChannelBlock>();
}

// A row is walked in pieces that stay in the first-level cache, so that a second look at one costs little. A piece
// gives one partial sum per channel.
inline constexpr int64_t kPieceElements = 2048;

// body(offset, n, channel, partial) for every piece of every row: n elements at `offset`, the first of them of
// `channel`; `partial` numbers the pieces of one row over all images.
template <class Body>
void for_each_piece(Stream stream, const ChannelRows& x, Body&& body) {
  const int64_t pieces = ceil_div(x.length, kPieceElements);
  parallel_for(stream, x.images * x.rows * pieces, grain(std::min(x.length, kPieceElements)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t row = unit / pieces, piece = unit % pieces, first = piece * kPieceElements;
                   body(row * x.length + first, std::min(kPieceElements, x.length - first), row % x.rows * x.width,
                        row / x.rows * pieces + piece);
                 }
               });
}
inline int64_t partial_count(const ChannelRows& x) { return x.images * ceil_div(x.length, kPieceElements); }

// sums[w] = Σ term(i, lane) over the i < n of channel w = i % kWidth. Term i is added in lane i % 32, whose channel is
// lane % kWidth; lanes are folded in halves.
inline constexpr int kPieceLanes = 32;
template <int kWidth, class A, class Term>
void sum_piece(int64_t n, A* sums, Term&& term) {
  A lanes[kPieceLanes] = {};
  int64_t i = 0;
  for (; i + kPieceLanes <= n; i += kPieceLanes)
    for (int lane = 0; lane < kPieceLanes; ++lane) lanes[lane] += term(i + lane, lane);
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += term(i + lane, lane);
  for (int half = kPieceLanes / 2; half >= kWidth; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  for (int w = 0; w < kWidth; ++w) sums[w] = lanes[w];
}

// write(c, Σ term(partial, c)), in double and in the order of the partial sums.
template <class Term, class Write>
void sum_partials(Stream stream, const ChannelRows& x, Term&& term, Write&& write) {
  constexpr int64_t kTile = 64;
  parallel_for(stream, ceil_div(x.channels(), kTile), 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kTile; first < std::min(x.channels(), end * kTile); first += kTile) {
      const int64_t n = std::min(kTile, x.channels() - first);
      double total[kTile] = {};
      for (int64_t partial = 0; partial < partial_count(x); ++partial)
        for (int64_t j = 0; j < n; ++j) total[j] += term(partial, first + j);
      for (int64_t j = 0; j < n; ++j) write(first + j, total[j]);
    }
  });
}

// body(i, w) for the n elements of a piece, element i of channel w = i % kWidth.
template <int kWidth, class Body>
void for_each_element(int64_t n, Body&& body) {
  for (int64_t i = 0; i < n; i += kWidth)
    for (int w = 0; w < kWidth; ++w) body(i + w, w);
}

// A per-channel array from its channel `first` on, repeated for every lane: what the inner loops load as one vector. It
// lives on the stack, so that the compiler knows that stores to the output do not change it.
template <int kWidth, class A>
struct PerLane {
  A value[kPieceLanes];
  explicit PerLane(const A* first) {
    for (int lane = 0; lane < kPieceLanes; ++lane) value[lane] = first[lane % kWidth];
  }
  A operator[](int lane) const { return value[lane]; }
};

}  // namespace ringgrad::cpu
