// Code that the batch normalisation kernels share: the position of each channel's elements in
// memory, and sums per channel that read memory once and do not depend on the number of threads.
// Private to core/cpu.
#pragma once

#include <cmath>
#include <type_traits>
#include <vector>

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cpu {

// Some channels of x [N, C, …] as rows of memory. Each image has `rows` rows of `length` elements,
// in which `width` channels alternate. `step` is the distance from one pixel to the next, in
// elements.
//
//   channel-blocked      one row per block, width 16; channels beyond C hold zeros
//   contiguous           one row per channel, width 1
//   contiguous [N, C]    all images are one row: 16 channels each, whose pixels are C elements
//   apart,
//                        and then the remaining channels one by one
struct ChannelRows {
  int64_t first;  // channel
  int64_t images;
  int64_t rows;
  int64_t row_step;
  int64_t length;
  int64_t width;
  int64_t step;

  int64_t channels() const { return rows * width; }
  int64_t count() const { return images * length / width; }  // elements of one channel
  bool interleaved() const { return step != width; }         // its pixels alternate with other rows

  // A row is processed in pieces that stay in the first-level cache, so that a second pass costs
  // little. Each piece gives one partial sum per channel. Interleaved rows have shorter pieces,
  // because pixels that are far apart compete for the same sets of the cache.
  int64_t piece() const { return interleaved() ? 512 : 2048; }
  int64_t pieces() const { return ceil_div(length, piece()); }
};
inline std::vector<ChannelRows> channel_rows(const Tensor& x) {
  const int64_t n = x.shape()[0];
  const int64_t c = x.shape()[1];
  int64_t pixels = 1;
  for (int d = 2; d < x.dim(); ++d) pixels *= x.shape()[d];
  const int64_t b = kChannelBlock;
  if (x.is_channel_blocked()) return {{0, n, ceil_div(c, b), pixels * b, pixels * b, b, b}};
  if (pixels != 1) return {{0, n, c, pixels, pixels, 1, 1}};
  const int64_t blocks = c / b;
  const int64_t rest = blocks * b;
  return {{0, 1, blocks, b, n * b, b, c}, {rest, 1, c - rest, 1, n, 1, c}};
}

// The number of channels including the padding of the last block.
inline int64_t padded_channels(const Tensor& x) {
  return ceil_div(x.shape()[1], kChannelBlock) * kChannelBlock;
}

// Copies `from` into `to`, followed by zeros up to `channels` values.
template <class A>
void load_channels(const Workspace<A>& to, int64_t channels, const Tensor& from) {
  std::fill(std::copy_n(from.data<A>(), from.numel(), to.data()), to.data() + channels, A{0});
}

// y = scale (x - mean) + shift. Padding channels have zeros in all three, so that zeros stay zeros.
template <class A>
struct Normalization {
  // [padded_channels]
  Workspace<A> mean;
  Workspace<A> scale;
  Workspace<A> shift;

  Normalization(Stream stream, const Tensor& x, const Tensor& means, const Tensor& var,
                const Tensor& weight, const Tensor& bias, double eps)
      : mean(stream, padded_channels(x)),
        scale(stream, padded_channels(x)),
        shift(stream, padded_channels(x)) {
    load_channels(mean, padded_channels(x), means);
    for (const Workspace<A>* coefficient : {&scale, &shift})
      std::fill_n(coefficient->data(), padded_channels(x), A{0});
    for (int64_t c = 0; c < x.shape()[1]; ++c) {
      const double rstd = 1 / std::sqrt(static_cast<double>(var.data<A>()[c]) + eps);
      // x - mean may overflow, and 0 · ∞ is NaN.
      if (rstd == 0 && std::isfinite(mean[c])) mean[c] = 0;
      scale[c] = static_cast<A>(weight.defined() ? weight.data<A>()[c] * rstd : rstd);
      shift[c] = bias.defined() ? bias.data<A>()[c] : A{0};
    }
  }
};

// dx = scale (g - mean_g - slope (x - mean)). If slope = 0, the product with (x - mean) is left
// out, because that may be infinite. Padding channels give 0. The terms may nearly cancel, so the
// scale is applied last: its rounding error then stays relative to the result.
template <class A>
struct NormalizationGradient {
  // [padded_channels]
  Workspace<A> mean;
  Workspace<A> scale;
  Workspace<A> mean_g;
  Workspace<A> slope;

  NormalizationGradient(Stream stream, const Tensor& x, const Tensor& means, const Tensor& var,
                        const Tensor& weight, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                        double eps, double count)
      : mean(stream, padded_channels(x)),
        scale(stream, padded_channels(x)),
        mean_g(stream, padded_channels(x)),
        slope(stream, padded_channels(x)) {
    load_channels(mean, padded_channels(x), means);
    for (const Workspace<A>* coefficient : {&scale, &mean_g, &slope})
      std::fill_n(coefficient->data(), padded_channels(x), A{0});
    for (int64_t i = 0; i < x.shape()[1]; ++i) {
      const double rstd = 1 / std::sqrt(static_cast<double>(var.data<A>()[i]) + eps);
      scale[i] = static_cast<A>(weight.defined() ? weight.data<A>()[i] * rstd : rstd);
      if (std::isinf(count)) continue;
      mean_g[i] = static_cast<A>(sum_dy.data<A>()[i] / count);
      slope[i] = static_cast<A>(sum_dy_xhat.data<A>()[i] / count * rstd);
    }
  }
};

// Returns true if t has x's shape, dtype and layout, so that both can be walked together.
inline bool lies_like(const Tensor& t, const Tensor& x) {
  return t.shape() == x.shape() && t.dtype() == x.dtype() && t.layout() == x.layout() &&
         (t.is_channel_blocked() || t.is_contiguous());
}

// Calls run.operator()<width>(step). Both are constants where possible, so that the inner loops
// know how many channels alternate and that pixels are adjacent.
template <class Run>
void visit_rows(const ChannelRows& rows, Run&& run) {
  if (rows.width != 1) return run.template operator()<kChannelBlock>(rows.step);
  if (rows.step != 1) return run.template operator()<1>(rows.step);
  run.template operator()<1>(std::integral_constant<int64_t, 1>());
}

// Calls body(offset, n, channel, partial) for every piece of every row. The piece has n elements
// from `offset` on, the first of them of `channel`, counted from x.first. `partial` numbers the
// pieces of one row over all images. Interleaved rows are walked side by side, so that memory is
// read in order.
template <class Body>
void for_each_piece(Stream stream, const ChannelRows& x, Body&& body) {
  const int64_t pieces = x.pieces();
  parallel_for(stream, x.images * x.rows * pieces, grain(std::min(x.length, x.piece())),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t row = x.interleaved() ? unit % x.rows : unit / pieces;
                   const int64_t piece = x.interleaved() ? unit / x.rows : unit % pieces;
                   const int64_t first = piece * x.piece();
                   body(x.first + row * x.row_step + first / x.width * x.step,
                        std::min(x.piece(), x.length - first), row % x.rows * x.width,
                        row / x.rows * pieces + piece);
                 }
                 conv::stream_fence();
               });
}
// Calls body(offset, n, channel) for pieces of whole pixels that need no sums. Interleaved blocks
// are walked pixel by pixel, so that memory is read and written in order.
template <class Body>
void for_each_part(Stream stream, const ChannelRows& x, Body&& body) {
  if (!x.interleaved() || x.width == 1)
    return for_each_piece(stream, x, [&](int64_t offset, int64_t n, int64_t channel, int64_t) {
      body(offset, n, channel);
    });
  parallel_for(stream, x.count(), grain(x.channels()), [&](int64_t begin, int64_t end) {
    for (int64_t pixel = begin; pixel < end; ++pixel)
      for (int64_t row = 0; row < x.rows; ++row)
        body(x.first + pixel * x.step + row * x.row_step, x.width, row * x.width);
  });
}
inline int64_t partial_count(const ChannelRows& x) { return x.images * x.pieces(); }

// Returns Σ term(i) over i < n. Term i is added to lane i % 32, and the lanes are folded in halves.
template <class A, class Term>
A sum_piece(int64_t n, Term&& term) {
  constexpr int kPieceLanes = 32;
  A lanes[kPieceLanes] = {};
  int64_t i = 0;
  for (; i + kPieceLanes <= n; i += kPieceLanes)
    for (int lane = 0; lane < kPieceLanes; ++lane) lanes[lane] += term(i + lane);
  for (int lane = 0; i + lane < n; ++lane) lanes[lane] += term(i + lane);
  for (int half = kPieceLanes / 2; half >= 1; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

// Calls write(c, Σ term(partial, c)). The sum is in double, in the order of the partial sums.
template <class Term, class Write>
void sum_partials(Stream stream, const ChannelRows& x, Term&& term, Write&& write) {
  constexpr int64_t kTile = 64;
  parallel_for(stream, ceil_div(x.channels(), kTile), 1, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin * kTile; first < std::min(x.channels(), end * kTile);
         first += kTile) {
      const int64_t n = std::min(kTile, x.channels() - first);
      double total[kTile] = {};
      for (int64_t partial = 0; partial < partial_count(x); ++partial)
        for (int64_t j = 0; j < n; ++j) total[j] += term(partial, first + j);
      for (int64_t j = 0; j < n; ++j) write(first + j, total[j]);
    }
  });
}

}  // namespace ringgrad::cpu
