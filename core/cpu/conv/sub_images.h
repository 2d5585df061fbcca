// A convolution with dilation d and stride 1 consists of d² ordinary ones (d along each axis):
// outputs d apart use inputs d apart, and nothing in between. So an image is split into d²
// sub-images. They are convolved by whatever algorithm is fastest for ordinary images, and their
// outputs are joined again. This costs one more copy of each image and its padding, and allows
// Winograd's algorithm, which takes fewer products. An infinite pixel can then make NaN in sums
// that do not use it.
#pragma once

#include "ringgrad/core/cpu/conv/blocked_images.h"
#include "ringgrad/core/kernels/geometry.h"

namespace ringgrad::conv {

// Pixel (i, j) of sub-image (a, b) is pixel (i d + a - padding, j d + b - padding) of the image.
// Beyond the image, pixels are zero when read and ignored when written.
struct SubImages {
  BlockedShape image;
  Pair dilation;
  Pair padding;
  // the size of each; together they hold the whole image
  int64_t h;
  int64_t w;

  BlockedShape parts() const { return {image.n * dilation.h * dilation.w, image.blocks, h, w}; }
};

// Returns the sub-images that a convolution reads, and those of its output, which have no padding.
SubImages sub_images_seen(const BlockedShape& x, const BlockedShape& y, Pair kernel,
                          const Conv2dOptions& options);
SubImages sub_images_made(const BlockedShape& y, const Conv2dOptions& options);

// split() makes parts [image][a][b][block of channels][h][w][16] from the image; join() does the
// reverse. T is float or bfloat16.
template <class T>
void split(Stream stream, const SubImages& sub, const T* image, T* parts);
template <class T>
void join(Stream stream, const SubImages& sub, const T* parts, T* image);

}  // namespace ringgrad::conv
