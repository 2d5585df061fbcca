// A 4-D tensor as kernels see it: logical sizes N C H W, and strides, which are those of NCHW or of NHWC memory.
#pragma once

#include "ringgrad/cuda_kernels/common/device_types.cuh"

namespace ringgrad::cuda {

struct Image {
  int64_t N, C, H, W;
  int64_t n_stride, c_stride, h_stride, w_stride;

  explicit Image(const Tensor& x)
      : N(x.shape()[0]),
        C(x.shape()[1]),
        H(x.shape()[2]),
        W(x.shape()[3]),
        n_stride(x.strides()[0]),
        c_stride(x.strides()[1]),
        h_stride(x.strides()[2]),
        w_stride(x.strides()[3]) {}

  __device__ __forceinline__ int64_t at(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * n_stride + c * c_stride + h * h_stride + w * w_stride;
  }

  struct Place {
    int64_t n, c, h, w;
  };
  // Element number i in the order of memory: neighbouring threads then touch neighbouring elements in either layout.
  __device__ __forceinline__ Place place(int64_t i) const {
    if (c_stride == 1) return {i / C / W / H, i % C, i / C / W % H, i / C % W};
    return {i / W / H / C, i / W / H % C, i / W % H, i % W};
  }
  __host__ __device__ int64_t numel() const { return N * C * H * W; }
};

inline bool is_image(const Tensor& x) { return x.dim() == 4 && (x.is_contiguous() || x.is_channels_last()); }

}  // namespace ringgrad::cuda
