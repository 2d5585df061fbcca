// What is the same on every device. First the layout that images take on theirs. A convolution chooses, because its
// speed depends on it most; what follows keeps what it gets where it has kernels for it. So the images of a network are
// reordered once, on their way in.
#include "ringgrad/core/kernels.h"

#include <atomic>

#include "ringgrad/core/factory.h"

namespace ringgrad::kernels {
namespace {

// On the CPU. With dilation an image becomes sub-images, which pays where Winograd's algorithm makes their outputs and
// most of its tiles are full: 3 x 3 then takes 0.3 to 0.8 of the time; direct, filters of 2 x 2 and 7 x 7 up to thrice.
bool fits_blocked_kernels(const Tensor& x, const Tensor& w, const Conv2dOptions& o) {
  const auto fills_tiles = [](int64_t outputs, int64_t dilation) {
    constexpr int64_t kTile = 4;
    return outputs > 0 && (outputs - 1) / (kTile * dilation) + 1 <= 3 * outputs / (2 * kTile * dilation);
  };
  const bool winograd = w.size(2) == w.size(3) && (w.size(2) == 3 || w.size(2) == 5);
  const bool dilated = winograd && o.stride == Pair(1) && x.size(1) >= kChannelBlock &&
                       fills_tiles(o.out_h(x.size(2), w.size(2)), o.dilation.h) &&
                       fills_tiles(o.out_w(x.size(3), w.size(3)), o.dilation.w);
  const bool square = o.stride.h == o.stride.w && o.padding.h == o.padding.w;
  return (o.dilation == Pair(1) ? square : dilated) && o.groups == 1 &&
         (x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16);
}

}  // namespace

// CUDA: channels-last for every dtype. All its convolutions are matrix products that sum over neighbouring channels and
// write neighbouring filters: tensor cores load eight of a pixel's channels as 16 bytes, and the threads of a warp on
// CUDA cores read 16 channels of 2 pixels, where in NCHW each channel would be a sector of memory of its own.
Layout conv2d_layout(const Tensor& x, const Tensor& w, const Conv2dOptions& options) {
  if (x.device().is_cuda()) return Layout::ChannelsLast;
  const bool empty = w.numel() == 0 || x.shape()[2] == 0 || x.shape()[3] == 0;
  return !empty && fits_blocked_kernels(x, w, options) ? Layout::ChannelBlocked : Layout::Strided;
}

// CUDA: KRSC in the images' dtype, for what conv2d_layout() says of neighbouring channels.
//
// Note [Why the optimizer does not write these copies]
// A step of ResNet-18 in bfloat16 makes 20 of them, which backward uses again: 20 launches that read 45 MB of float32
// and write 22 MB. An optimizer that wrote a 16-bit copy of its arena besides would save the launches and the reading:
// 0.04 ms by the model of bench/sass.py, of which 0.03 ms are launches; that is 0.6 % of a step of 512 images, 3 % of
// one of 64. But it would write KCRS, as the arena lies, and turning that into KRSC takes a launch for each convolution
// again. So the optimizer would have to know which parameters are filters; or the arena would keep filters as KRSC,
// which gradients, checkpoints and the CPU's kernels, all KCRS, would have to turn. And whoever else writes to a weight
// would have to see to its copy. Not worth it.
Tensor conv2d_filters(const Tensor& x, const Tensor& w) {
  if (!x.device().is_cuda() || (w.is_channels_last() && w.dtype() == x.dtype())) return w;
  const Tensor filters = empty(w.shape(), {x.dtype(), w.device(), Layout::ChannelsLast});
  copy(filters, w);
  return filters;
}

Layout pool2d_layout(const Tensor& x) {
  if (x.device().is_cuda()) return x.is_channel_blocked() ? Layout::Strided : x.layout();
  const bool vectors = x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16;
  return vectors && x.is_channel_blocked() ? Layout::ChannelBlocked : Layout::Strided;
}

Layout batch_norm_layout(const Tensor& x) {
  return x.device().is_cuda() || x.is_channel_blocked() ? x.layout() : Layout::Strided;
}

// As the layout has its numbers: 16 bits for the channels of a block's pixel.
Tensor batch_norm_positive(const Tensor& x) {
  const bool vectors = x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16;
  const bool ours = !x.device().is_cuda() && preferred_provider(DeviceType::CPU) == Provider::Native;
  if (!vectors || !ours || !x.is_channel_blocked()) return {};
  const int64_t blocks = (x.size(1) + kChannelBlock - 1) / kChannelBlock;
  return empty({x.numel() / x.size(1) * blocks, 2}, {DType::UInt8, x.device()});
}

}  // namespace ringgrad::kernels

namespace ringgrad {

static std::atomic<ConvAlgorithm> chosen_algorithm{ConvAlgorithm::Auto};
void set_conv_algorithm(ConvAlgorithm algorithm) { chosen_algorithm = algorithm; }
ConvAlgorithm conv_algorithm() { return chosen_algorithm; }

void batch_norm_in_steps(Stream, const Tensor& y, const Tensor& positive, const Tensor& mean, const Tensor& var,
                         const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual, double eps,
                         bool relu, const kernels::RunningStatistics& running) {
  kernels::batch_norm_stats(mean, var, x);
  kernels::batch_norm_apply(y, positive, x, mean, var, weight, bias, residual, eps, relu);
  update_running(running, mean, var, static_cast<double>(x.numel()) / static_cast<double>(x.size(1)));
}

void update_running(const kernels::RunningStatistics& running, const Tensor& mean, const Tensor& var, double count) {
  const double kept = 1 - running.momentum;
  if (running.mean) kernels::axpby(running.mean, mean, running.momentum, kept);
  if (running.var) kernels::axpby(running.var, var, running.momentum * (count / (count - 1)), kept);
  if (running.batches) kernels::affine(running.batches, running.batches, 1, 1);
}

void batch_norm_backward_in_steps(Stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat, const Tensor& dx,
                                  const Tensor& dresidual, const Tensor& dy, const Tensor& x, const Tensor& y,
                                  const Tensor& mean, const Tensor& var, const Tensor& weight, double eps) {
  kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x, y, mean, var, eps);
  if (!dx) return;
  const double count = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  kernels::batch_norm_backward_apply(dx, dresidual, dy, x, y, mean, var, weight, sum_dy, sum_dy_xhat, eps, count);
}

Tensor batch_norm_rectified(const Tensor& dresidual, const Tensor& dy, const Tensor& y) {
  if (!dresidual && !y) return dy;
  const Tensor g = dresidual ? dresidual : empty_like(dy);
  if (y)
    kernels::relu_backward(g, dy, y);
  else
    kernels::copy(g, dy);
  return g;
}

}  // namespace ringgrad
