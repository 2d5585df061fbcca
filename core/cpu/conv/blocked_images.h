// The sizes of a two-dimensional convolution, and the layout of its images.
//
// Images are channel-blocked: [N, ⌈C/16⌉, H, W, 16], float32 or bfloat16. So a vector register
// holds neighbouring channels of one pixel, whatever the size and stride of the window. In the last
// block the lanes beyond C hold zeros. Every kernel of this folder relies on that and preserves it
// for finite inputs. Filters are plain [K, C, R, S].
#pragma once

#include <cstdint>

#include "ringgrad/core/tensor.h"

namespace ringgrad::conv {

inline int64_t channel_blocks(int64_t channels) {
  return (channels + kChannelBlock - 1) / kChannelBlock;
}

// y[n,k,p,q] = Σ_{c,r,s} x[n, c, p stride + r - padding, q stride + s - padding] w[k,c,r,s]
struct Conv2dGeometry {
  // x [n, c, h, w]
  int64_t n;
  int64_t c;
  int64_t h;
  int64_t w;
  // filters [k, c, r, s]
  int64_t k;
  int64_t r;
  int64_t s;
  int64_t stride;
  int64_t padding;
  // y [n, k, oh, ow]
  int64_t oh;
  int64_t ow;
  bool operator==(const Conv2dGeometry&) const = default;
};

// Computes oh and ow. Throws ShapeError if a size is not positive (n may be 0), the padding is
// negative, or a filter does not fit into the padded image.
Conv2dGeometry conv2d_geometry(int64_t n, int64_t c, int64_t h, int64_t w, int64_t k, int64_t r,
                               int64_t s, int64_t stride, int64_t padding);

// The physical shape of a channel-blocked image.
struct BlockedShape {
  int64_t n;
  int64_t blocks;
  int64_t h;
  int64_t w;
  int64_t plane() const { return h * w * kChannelBlock; }  // elements of one block of one image
  int64_t numel() const { return n * blocks * plane(); }
  int64_t channels() const { return blocks * kChannelBlock; }  // padding included
};
inline BlockedShape input_shape(const Conv2dGeometry& g) {
  return {g.n, channel_blocks(g.c), g.h, g.w};
}
inline BlockedShape output_shape(const Conv2dGeometry& g) {
  return {g.n, channel_blocks(g.k), g.oh, g.ow};
}

// Images [n, c, pixels] of contiguous planes that may be part of other images. The strides from
// image to image and from channel to channel are given.
struct Planes {
  int64_t n;
  int64_t c;
  int64_t pixels;
  int64_t image;
  int64_t channel;
};
// These convert between planes and channel-blocked images. T is float, or uint16_t for the bits of
// 16-bit numbers. nchw_to_blocked() writes zeros into the padding.
template <class T>
void nchw_to_blocked(Stream stream, const Planes& planes, const T* nchw, T* blocked);
template <class T>
void blocked_to_nchw(Stream stream, const Planes& planes, const T* blocked, T* nchw);

}  // namespace ringgrad::conv
