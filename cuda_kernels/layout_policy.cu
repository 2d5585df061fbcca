// How images lie on CUDA devices, and how they are convolved.
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad::cuda {
namespace {

// Tensor cores are fed so many neighbouring channels at a time.
constexpr int64_t kTensorCoreChannels = 8;

bool for_tensor_cores(DType dtype) { return dtype == DType::BFloat16 || dtype == DType::Float16; }

// Channels-last for every dtype. All convolutions here are matrix products that sum over
// neighbouring channels and write neighbouring filters: tensor cores load eight of a pixel's
// channels as 16 bytes, and the threads of a warp on CUDA cores read 16 channels of 2 pixels, where
// in NCHW each channel would be a sector of memory of its own.
//
// Where a first layer's images have fewer channels than tensor cores are fed, its sums are made
// longer by zeros: on CUDA cores alone it would take longer than the layers behind it. Other images
// with few channels stay where they are, since they are no vector of 8 to load.
ConvPlan conv2d(const ConvProblem& p) {
  const bool few = p.x[1] < kTensorCoreChannels;
  ConvPlan plan{.layout = Layout::ChannelsLast, .x_layout = Layout::ChannelsLast};
  if (few && p.x_layout != Layout::ChannelsLast) plan.x_layout = Layout::Strided;
  const bool whole_channels =
      p.w[1] % kTensorCoreChannels == 0 && p.w[0] / p.options.groups % kTensorCoreChannels == 0;
  plan.method =
      for_tensor_cores(p.dtype) && whole_channels ? ConvMethod::TensorCores : ConvMethod::CudaCores;
  if (p.layout) return plan;
  if (few && for_tensor_cores(p.dtype) && p.options.groups == 1 && p.x[1] > 0)
    plan.padded_channels = kTensorCoreChannels;
  if (covers_image(p)) plan.method = ConvMethod::MatrixProduct;
  return plan;
}

// KRSC in the images' dtype, for what conv2d() says of neighbouring channels.
//
// Note [Why the optimizer does not write these copies]
// A step of ResNet-18 in bfloat16 makes 20 of them, which backward uses again: 20 launches that
// read 45 MB of float32 and write 22 MB. An optimizer that wrote a 16-bit copy of its arena besides
// would save the launches and the reading: 0.04 ms by the model of bench/sass.py, of which 0.03 ms
// are launches; that is 0.6 % of a step of 512 images, 3 % of one of 64. But it would write KCRS,
// as the arena lies, and turning that into KRSC takes a launch for each convolution again. So the
// optimizer would have to know which parameters are filters; or the arena would keep filters as
// KRSC, which gradients, checkpoints and the CPU's kernels, all KCRS, would have to turn. And
// whoever else writes to a weight would have to see to its copy. Not worth it.
Tensor conv2d_filters(const Tensor& x, const Tensor& w) {
  if (w.is_channels_last() && w.dtype() == x.dtype()) return w;
  const Tensor filters = empty(w.shape(), {x.dtype(), w.device(), Layout::ChannelsLast});
  kernels::copy(filters, w);
  return filters;
}

Layout pool2d(const Tensor& x) { return x.is_channel_blocked() ? Layout::Strided : x.layout(); }
Layout batch_norm(const Tensor& x) { return x.layout(); }
Tensor batch_norm_positive(const Tensor&) { return {}; }

BEFORE_MAIN(cuda_layouts,
            register_layout_policy(DeviceType::CUDA, {.conv2d = conv2d,
                                                      .conv2d_filters = conv2d_filters,
                                                      .pool2d = pool2d,
                                                      .batch_norm = batch_norm,
                                                      .batch_norm_positive = batch_norm_positive}));

}  // namespace
}  // namespace ringgrad::cuda
