// Cuts a convolution of contiguous images into strips of padded planes. In a strip each tap reads
// its pixels from one offset on. Private to core/cpu/conv.
#pragma once

#include <vector>

#include "ringgrad/core/cpu/conv/gemm.h"
#include "ringgrad/core/cpu/im2col.h"

namespace ringgrad::conv {

using cpu::ceil_div;
using cpu::ConvShape;

// The most terms of one sum.
inline constexpr int64_t kTerms = 128;
// The floats of a strip's inputs, and of its outputs: half a second-level cache.
inline constexpr int64_t kStripFloats = 65536;

// The windows along one dimension: output first + i step, for i < count, reads input offsets[t] + i
// stride through taps[t]. A convolution has one such pattern. In its gradient neighbouring outputs
// use different taps, so there are as many patterns as the stride.
struct Sight {
  int64_t first;
  int64_t step;
  int64_t count;
  int64_t stride;
  std::vector<int64_t> taps = {};
  std::vector<int64_t> offsets = {};

  int64_t least() const {
    return offsets.empty() ? 0 : *std::min_element(offsets.begin(), offsets.end());
  }
  int64_t most() const {
    return offsets.empty() ? 0 : *std::max_element(offsets.begin(), offsets.end());
  }
  // The number of inputs that `outputs` outputs read.
  int64_t extent(int64_t outputs) const { return (outputs - 1) * stride + most() - least() + 1; }
};
inline Sight sight_of(int64_t taps, int64_t stride, int64_t padding, int64_t dilation,
                      int64_t out) {
  Sight sight{0, 1, out, stride};
  for (int64_t tap = 0; tap < taps; ++tap) {
    sight.taps.push_back(tap);
    sight.offsets.push_back(tap * dilation - padding);
  }
  return sight;
}

// The images on one side of a convolution.
struct Images {
  // channels of a group
  int64_t n;
  int64_t groups;
  int64_t channels;
  int64_t h;
  int64_t w;
  int64_t plane() const { return h * w; }
  int64_t group_at(int64_t image, int64_t group) const {
    return (image * groups + group) * channels * plane();
  }
};

// Cuts the outputs into strips of whole rows. The inputs of a strip are copied plane by plane with
// zeros around them. So the inputs of neighbouring outputs at one tap are equally far apart
// everywhere.
struct PlaneStrips {
  // rows of outputs; strips of an image
  int64_t outputs;
  int64_t count;
  // the first input of the first strip in a plane
  int64_t top;
  int64_t left;
  int64_t rows;
  int64_t columns;
  int64_t plane;  // floats from plane to plane: an odd number of cache lines

  PlaneStrips(const Images& in, const Sight& p, const Sight& q)
      : top(p.least()), left(q.least()), columns(q.extent(q.count)) {
    const int64_t seen = kStripFloats / (std::max<int64_t>(1, in.channels) * columns);  // rows
    const int64_t most =
        std::min((seen - p.extent(1)) / p.stride + 1, kStripFloats / (q.count * kPanel));
    count = ceil_div(p.count, std::clamp<int64_t>(most, 1, p.count));
    outputs = ceil_div(p.count, count);
    count = ceil_div(p.count, outputs);
    rows = p.extent(outputs);
    plane = (ceil_div(rows * columns, kChannelBlock) | 1) * kChannelBlock;
  }
  // Register tiles read up to three rows of a left matrix too many. Its rows are pixels, or planes.
  int64_t floats(const Images& in, const Sight& q) const {
    return (in.channels + 3) * plane + 3 * q.stride + kChannelBlock;
  }
  void copy(const Images& in, const Sight& p, int64_t strip, const float* group,
            float* planes) const {
    const Pair padding{-top - strip * outputs * p.stride, -left};
    const ConvShape one_tap{1, 1, 1, in.h, in.w, 1, 1, 1, rows, columns, Pair(1), padding, Pair(1)};
    for (int64_t c = 0; c < in.channels; ++c)
      cpu::unfold_plane(one_tap, 0, 0, 0, rows, planes + c * plane, group + c * in.plane());
  }
  // Returns the offsets of the taps of p × q from an output's first input.
  std::vector<int64_t> offsets(const Sight& p, const Sight& q) const {
    std::vector<int64_t> offsets;
    for (const int64_t i : p.offsets)
      for (const int64_t j : q.offsets) offsets.push_back((i - top) * columns + j - left);
    return offsets;
  }
};

inline Images images_x(const ConvShape& s) { return {s.n, s.groups, s.c, s.h, s.w}; }
inline Images images_y(const ConvShape& s) { return {s.n, s.groups, s.k, s.p, s.q}; }
inline Sight rows_of(const ConvShape& s) {
  return sight_of(s.r, s.stride.h, s.padding.h, s.dilation.h, s.p);
}
inline Sight columns_of(const ConvShape& s) {
  return sight_of(s.s, s.stride.w, s.padding.w, s.dilation.w, s.q);
}

}  // namespace ringgrad::conv
