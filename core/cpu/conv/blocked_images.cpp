#include "ringgrad/core/cpu/conv/blocked_images.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::conv {

Conv2dGeometry conv2d_geometry(int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t r,
                               int64_t s, int64_t stride, int64_t padding) {
  CHECK_AS(ShapeError, n >= 0 && c > 0 && h > 0 && w > 0, "conv2d: the input is [", n, ", ", c,
           ", ", h, ", ", w, "], expected positive sizes");
  CHECK_AS(ShapeError, k > 0 && r > 0 && s > 0, "conv2d: the filters are [", k, ", ", c, ", ", r,
           ", ", s, "], expected positive sizes");
  CHECK_AS(ShapeError, stride > 0 && padding >= 0, "conv2d: stride is ", stride, " and padding ",
           padding, ", expected a positive stride and no negative padding");
  CHECK_AS(ShapeError, h + 2 * padding >= r && w + 2 * padding >= s, "conv2d: a filter of ", r,
           " x ", s, " does not fit into an image of ", h, " x ", w, " with padding ", padding);
  return {n,
          c,
          h,
          w,
          k,
          r,
          s,
          stride,
          padding,
          (h + 2 * padding - r) / stride + 1,
          (w + 2 * padding - s) / stride + 1};
}

namespace {

constexpr int64_t kUnitPixels = 256;  // pixels of a block per unit of work: 16 KiB on each side

// Calls body(plane, channels, first, last, padded) for pieces [first, last) of the pixels of each
// block of channels. `plane` points to the first of the block's `channels` channels, and `padded`
// to pixel 0 in the blocked image.
template <class T, class Blocked, class Body>
void for_each_piece(Stream stream, const Planes& p, T* nchw, Blocked* blocked, Body body) {
  const int64_t blocks = channel_blocks(p.c);
  const int64_t pieces = (p.pixels + kUnitPixels - 1) / kUnitPixels;
  parallel_for(stream, p.n * blocks * pieces, 1, [&](int64_t unit, int64_t) {
    const int64_t block = unit / pieces % blocks;
    const int64_t image = unit / pieces / blocks;
    const int64_t first = unit % pieces * kUnitPixels;
    body(nchw + image * p.image + block * kChannelBlock * p.channel,
         std::min(kChannelBlock, p.c - block * kChannelBlock), first,
         std::min(p.pixels, first + kUnitPixels),
         blocked + (image * blocks + block) * p.pixels * kChannelBlock);
  });
}

}  // namespace

template <class T>
void nchw_to_blocked(Stream stream, const Planes& planes, const T* nchw, T* blocked) {
  const int64_t apart = planes.channel;
  for_each_piece(stream, planes, nchw, blocked,
                 [=](const T* plane, int64_t channels, int64_t first, int64_t last, T* block) {
                   int64_t i = first;
                   if (channels == kChannelBlock)
                     for (; i + kChannelBlock <= last; i += kChannelBlock)
                       transpose_block(plane + i, apart, block + i * kChannelBlock, kChannelBlock);
                   for (; i < last; ++i)
                     for (int64_t lane = 0; lane < kChannelBlock; ++lane)
                       block[i * kChannelBlock + lane] =
                           lane < channels ? plane[lane * apart + i] : T{0};
                 });
}

template <class T>
void blocked_to_nchw(Stream stream, const Planes& planes, const T* blocked, T* nchw) {
  const int64_t apart = planes.channel;
  for_each_piece(stream, planes, nchw, blocked,
                 [=](T* plane, int64_t channels, int64_t first, int64_t last, const T* block) {
                   int64_t i = first;
                   if (channels == kChannelBlock)
                     for (; i + kChannelBlock <= last; i += kChannelBlock)
                       transpose_block(block + i * kChannelBlock, kChannelBlock, plane + i, apart);
                   for (int64_t lane = 0; lane < channels; ++lane)
                     for (int64_t j = i; j < last; ++j)
                       plane[lane * apart + j] = block[j * kChannelBlock + lane];
                 });
}

template void nchw_to_blocked(Stream, const Planes&, const float*, float*);
template void nchw_to_blocked(Stream, const Planes&, const uint16_t*, uint16_t*);
template void blocked_to_nchw(Stream, const Planes&, const float*, float*);
template void blocked_to_nchw(Stream, const Planes&, const uint16_t*, uint16_t*);

}  // namespace ringgrad::conv
