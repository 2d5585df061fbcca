// Which layout images take on their device. A convolution chooses, because its speed depends on it most; what follows
// keeps what it gets where it has kernels for it. So the images of a network are reordered once, on their way in.
#include "ringgrad/core/kernels.h"

namespace ringgrad::kernels {
namespace {

bool fits_blocked_kernels(const Tensor& x, const Conv2dOptions& o) {
  const auto& [stride, padding, dilation, groups] = o;
  return stride.h == stride.w && padding.h == padding.w && dilation == Pair(1) && groups == 1 &&
         (x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16);
}

}  // namespace

// CUDA: channels-last for every dtype. All its convolutions are matrix products that sum over neighbouring channels and
// write neighbouring filters: tensor cores load eight of a pixel's channels as 16 bytes, and the threads of a warp on
// CUDA cores read 16 channels of 2 pixels, where in NCHW each channel would be a sector of memory of its own.
Layout conv2d_layout(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  if (x.device().is_cuda()) return Layout::ChannelsLast;
  const bool empty = w.numel() == 0 || x.shape()[2] == 0 || x.shape()[3] == 0;
  return !empty && fits_blocked_kernels(x, options) ? Layout::ChannelBlocked : Layout::Strided;
}

Layout pool2d_layout(const Tensor& x) {
  if (x.device().is_cuda()) return x.is_channel_blocked() ? Layout::Strided : x.layout();
  const bool vectors = x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16;
  return vectors && x.is_channel_blocked() ? Layout::ChannelBlocked : Layout::Strided;
}

Layout batch_norm_layout(const Tensor& x) {
  return x.device().is_cuda() || x.is_channel_blocked() ? x.layout() : Layout::Strided;
}

}  // namespace ringgrad::kernels
