// A convolution with dilation d and stride 1 is d² ordinary ones (d along each axis): outputs d
// apart see inputs d apart, and nothing in between. So an image is split into d² sub-images, which
// are convolved as any images are, by whatever algorithm is fastest, and their outputs are joined
// again: one copy more of each image and its padding, for products that Winograd's algorithm makes
// fewer of. An infinite pixel can make NaN of sums beside those that see it.
#pragma once

#include "ringgrad/core/cpu/conv/blocked_images.h"
#include "ringgrad/core/kernels/geometry.h"

namespace ringgrad::conv {

// Pixel (i, j) of sub-image (a, b) is pixel (i d + a - padding, j d + b - padding) of the image;
// beyond it: zero, or nothing.
struct SubImages {
  BlockedShape image;
  Pair dilation;
  Pair padding;
  // of each; together they hold the whole image
  int64_t h;
  int64_t w;

  BlockedShape parts() const { return {image.n * dilation.h * dilation.w, image.blocks, h, w}; }
};

// Those which a convolution sees, and those of its output, without padding.
SubImages sub_images_seen(const BlockedShape& x, const BlockedShape& y, Pair kernel,
                          const Conv2dOptions& options);
SubImages sub_images_made(const BlockedShape& y, const Conv2dOptions& options);

// parts [image][a][b][block of channels][h][w][16] from the image, and the other way. T: float or
// bfloat16.
template <class T>
void split(Stream stream, const SubImages& sub, const T* image, T* parts);
template <class T>
void join(Stream stream, const SubImages& sub, const T* parts, T* image);

}  // namespace ringgrad::conv
