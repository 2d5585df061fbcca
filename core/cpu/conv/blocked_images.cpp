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

constexpr int64_t kUnitPixels = 256;  // pixels of a block per unit of work: 16 KiB on either side

// body(plane, channels, first, last, padded) for pieces of the pixels of each block of channels:
// `plane` numbers the first of its `channels` channels among all images' channels, `padded` points
// to pixel 0 in the blocked image.
template <class Blocked, class Body>
void for_each_piece(Stream stream, int64_t n, int64_t c, int64_t pixels, Blocked* blocked,
                    Body body) {
  const int64_t blocks = channel_blocks(c), pieces = (pixels + kUnitPixels - 1) / kUnitPixels;
  parallel_for(stream, n * blocks * pieces, 1, [&](int64_t unit, int64_t) {
    const int64_t block = unit / pieces % blocks, image = unit / pieces / blocks,
                  first = unit % pieces * kUnitPixels;
    body(image * c + block * kChannelBlock, std::min(kChannelBlock, c - block * kChannelBlock),
         first, std::min(pixels, first + kUnitPixels),
         blocked + (image * blocks + block) * pixels * kChannelBlock);
  });
}

}  // namespace

void nchw_to_blocked(Stream stream, int64_t n, int64_t c, int64_t h, int64_t w, const float* nchw,
                     float* blocked) {
  const int64_t pixels = h * w;
  for_each_piece(stream, n, c, pixels, blocked,
                 [&](int64_t plane, int64_t channels, int64_t first, int64_t last, float* block) {
                   const float* const from = nchw + plane * pixels;
                   int64_t i = first;
                   if (channels == kChannelBlock)
                     for (; i + kChannelBlock <= last; i += kChannelBlock)
                       transpose_block(from + i, pixels, block + i * kChannelBlock, kChannelBlock);
                   for (; i < last; ++i)
                     for (int64_t lane = 0; lane < kChannelBlock; ++lane)
                       block[i * kChannelBlock + lane] =
                           lane < channels ? from[lane * pixels + i] : 0.0f;
                 });
}

void blocked_to_nchw(Stream stream, int64_t n, int64_t c, int64_t h, int64_t w,
                     const float* blocked, float* nchw) {
  const int64_t pixels = h * w;
  for_each_piece(
      stream, n, c, pixels, blocked,
      [&](int64_t plane, int64_t channels, int64_t first, int64_t last, const float* block) {
        float* const to = nchw + plane * pixels;
        int64_t i = first;
        if (channels == kChannelBlock)
          for (; i + kChannelBlock <= last; i += kChannelBlock)
            transpose_block(block + i * kChannelBlock, kChannelBlock, to + i, pixels);
        for (int64_t lane = 0; lane < channels; ++lane)
          for (int64_t j = i; j < last; ++j)
            to[lane * pixels + j] = block[j * kChannelBlock + lane];
      });
}

}  // namespace ringgrad::conv
