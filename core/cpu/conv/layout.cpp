#include "ringgrad/core/cpu/conv/layout.h"

#include <algorithm>

#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::conv {
namespace {

constexpr int64_t kUnitPixels = 256;  // pixels of a block per unit of work: 16 KiB on either side

// body(plane, channels, first, last, padded) for pieces of the pixels of each block of channels: `plane` numbers the
// first of its `channels` channels among all images' channels, `padded` points to pixel 0 in the blocked image.
template <class Blocked, class Body>
void for_each_piece(Stream stream, int64_t n, int64_t c, int64_t pixels, Blocked* blocked, Body body) {
  const int64_t blocks = channel_blocks(c), pieces = (pixels + kUnitPixels - 1) / kUnitPixels;
  parallel_for(stream, n * blocks * pieces, 1, [&](int64_t unit, int64_t) {
    const int64_t block = unit / pieces % blocks, image = unit / pieces / blocks, first = unit % pieces * kUnitPixels;
    body(image * c + block * kBlock, std::min(kBlock, c - block * kBlock), first, std::min(pixels, first + kUnitPixels),
         blocked + (image * blocks + block) * pixels * kBlock);
  });
}

}  // namespace

void nchw_to_blocked(Stream stream, int64_t n, int64_t c, int64_t h, int64_t w, const float* nchw, float* blocked) {
  const int64_t pixels = h * w;
  for_each_piece(stream, n, c, pixels, blocked,
                 [&](int64_t plane, int64_t channels, int64_t first, int64_t last, float* block) {
                   const float* const from = nchw + plane * pixels;
                   int64_t i = first;
                   if (channels == kBlock)
                     for (; i + kBlock <= last; i += kBlock)
                       transpose_block(from + i, pixels, block + i * kBlock, kBlock);
                   for (; i < last; ++i)
                     for (int64_t lane = 0; lane < kBlock; ++lane)
                       block[i * kBlock + lane] = lane < channels ? from[lane * pixels + i] : 0.0f;
                 });
}

void blocked_to_nchw(Stream stream, int64_t n, int64_t c, int64_t h, int64_t w, const float* blocked, float* nchw) {
  const int64_t pixels = h * w;
  for_each_piece(stream, n, c, pixels, blocked,
                 [&](int64_t plane, int64_t channels, int64_t first, int64_t last, const float* block) {
                   float* const to = nchw + plane * pixels;
                   int64_t i = first;
                   if (channels == kBlock)
                     for (; i + kBlock <= last; i += kBlock)
                       transpose_block(block + i * kBlock, kBlock, to + i, pixels);
                   for (int64_t lane = 0; lane < channels; ++lane)
                     for (int64_t j = i; j < last; ++j) to[lane * pixels + j] = block[j * kBlock + lane];
                 });
}

}  // namespace ringgrad::conv
