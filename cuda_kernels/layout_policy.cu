// The layout of images on CUDA devices, and the choice of the convolution's method.
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/conv_plan.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::cuda {
namespace {

// Tensor cores load this many neighbouring channels at a time.
constexpr int64_t kTensorCoreChannels = 8;

bool for_tensor_cores(DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Float16; }

// Images are channels-last for every dtype. All convolutions here are matrix products that sum over
// neighbouring channels and write neighbouring filters. Tensor cores load eight of a pixel's
// channels as 16 bytes. The threads of a warp on CUDA cores read 16 channels of 2 pixels; in NCHW
// each channel would be a separate sector.
//
// A first layer's images with fewer channels than tensor cores load keep their layout, because they
// have no vector of 8 to load. They have kernels of their own (conv2d_first_layer.cu). If those do
// not apply, the sums are extended by zeros: on CUDA cores alone the layer would take longer than
// the layers after it.
ConvPlan conv2d(const ConvProblem& p) {
  const bool few = p.x[1] < kTensorCoreChannels;
  ConvPlan plan{.layout = Layout::ChannelsLast, .x_layout = Layout::ChannelsLast};
  if (few && p.x_layout != Layout::ChannelsLast) plan.x_layout = Layout::Strided;
  const bool whole_channels =
      p.w[1] % kTensorCoreChannels == 0 && p.w[0] / p.options.groups % kTensorCoreChannels == 0;
  const bool first_layer = first_layer_supports(p.x, p.w, p.dtype, p.options);
  plan.method = for_tensor_cores(p.dtype) && (whole_channels || first_layer)
                    ? ConvMethod::TensorCores
                    : ConvMethod::CudaCores;
  if (p.layout) return plan;
  if (few && !first_layer && for_tensor_cores(p.dtype) && p.options.groups == 1 && p.x[1] > 0)
    plan.padded_channels = kTensorCoreChannels;
  if (covers_image(p)) plan.method = ConvMethod::MatrixProduct;
  return plan;
}

// Returns the filters as KRSC in the images' dtype, because conv2d() reads neighbouring channels.
//
// Note [Why the optimizer does not write these copies]
// A step of ResNet-18 in bfloat16 makes 20 of them, which backward uses again: 20 launches that
// read 45 MB of float32 and write 22 MB. An optimizer that also wrote a 16-bit copy of its arena
// would save the launches and the reads. By the model of bench/sass.py that is 0.04 ms, of which
// 0.03 ms are launches: 0.6 % of a step of 512 images, 3 % of one of 64. But it would write KCRS,
// the arena's order, and converting that to KRSC again takes a launch for each convolution. So the
// optimizer would have to know which parameters are filters. Or the arena would keep filters as
// KRSC; then gradients, checkpoints and the CPU's kernels, all KCRS, would have to convert. And any
// other code that writes to a weight would have to update its copy. This is not worth it.
Tensor conv2d_filters(const Tensor& x, const Tensor& w) {
  if (w.is_channels_last() && w.dtype() == x.dtype()) return w;
  const Tensor filters = empty(w.shape(), {x.dtype(), w.device(), Layout::ChannelsLast});
  kernels::copy(filters, w);
  return filters;
}

Layout pool2d(const Tensor& x) { return x.is_channel_blocked() ? Layout::Strided : x.layout(); }
Layout batch_norm(const Tensor& x) { return x.layout(); }

// One bit per element in the order of memory, if vectors of eight write whole bytes. cuDNN has no
// such bits, so batch norm with ReLU then uses our kernels. Backward reads x and dy twice, and with
// bits a sixteenth of y: more is saved than cuDNN could gain in forward (a model's claim, not yet
// measured).
Tensor batch_norm_positive(const Tensor& x) {
  const Provider provider = preferred_provider(DeviceType::CUDA);
  const bool last = x.is_channels_last() && !x.is_contiguous();
  if (provider == Provider::Vendor || provider == Provider::Reference) return {};
  if (!for_tensor_cores(x.dtype()) || x.is_channel_blocked() || x.numel() == 0) return {};
  if (!last && !x.is_contiguous()) return {};
  const int64_t C = x.size(1);
  const int64_t neighbours = last ? C : x.numel() / x.size(0) / C;
  if (neighbours % kTensorCoreChannels != 0) return {};
  return empty({x.numel() / 8}, {DType::UInt8, x.device()});
}

BEFORE_MAIN(cuda_layouts,
            register_layout_policy(DeviceType::CUDA, {.conv2d = conv2d,
                                                      .conv2d_filters = conv2d_filters,
                                                      .pool2d = pool2d,
                                                      .batch_norm = batch_norm,
                                                      .batch_norm_positive = batch_norm_positive}));

}  // namespace
}  // namespace ringgrad::cuda
