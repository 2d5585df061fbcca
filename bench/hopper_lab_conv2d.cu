// The convolutions of ResNet-18 on CIFAR-10, batch 512, in bfloat16. Then those of ResNet-20, and
// of the MNIST CNN, batch 128. Each pass by each algorithm that applies is compared with
// mma.sync's (conv2d_tensor_cores.cu). The predictions for an H200 are explained in each kernel's
// first comment, and in cuda_kernels/README.md.
#include "ringgrad/bench/hopper_lab.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/hopper/conv2d.h"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::lab {
namespace {

using cuda::ConvStep;
using cuda::HopperConv;

struct Layer {
  int64_t channels;
  int64_t filters;
  int64_t side;
  int64_t taps;  // per dimension
  int64_t stride;
  double predicted_us[3];  // of y, dx, dw
  int64_t images = 512;
};
constexpr Layer kLayers[] = {
    {64, 64, 32, 3, 1, {64, 68, 65}},       {64, 128, 32, 3, 2, {37, 50, 39}},
    {128, 128, 16, 3, 1, {66, 70, 66}},     {128, 256, 16, 3, 2, {37, 47, 41}},
    {256, 256, 8, 3, 1, {63, 65, 66}},      {256, 512, 8, 3, 2, {37, 47, 41}},
    {512, 512, 4, 3, 1, {61, 63, 65}},      {64, 128, 32, 1, 2, {4, 6, 4}},
    {128, 256, 16, 1, 2, {3, 4, 3}},        {256, 512, 8, 1, 2, {2, 3, 3}},
    {16, 16, 32, 3, 1, {5.5, 5.5, 9}, 128}, {16, 32, 32, 3, 2, {5.5, 5.5, 10}, 128},
    {32, 32, 16, 3, 1, {5, 5, 9.5}, 128},   {32, 64, 16, 3, 2, {6, 5, 11}, 128},
    {64, 64, 8, 3, 1, {6.5, 6.5, 13}, 128}, {16, 32, 14, 5, 1, {5, 5, 9}, 128},
};

Tensor channels_last_noise(const Shape& shape) {
  const Tensor x = noise(shape, DType::BFloat16);
  const Tensor y = empty(shape, {x.dtype(), x.device(), Layout::ChannelsLast});
  kernels::copy(y, x);
  return y;
}

struct Method {
  const char* name;
  ConvStep step;
  HopperConv algorithm = HopperConv::None;
  bool vendor = false;  // cuDNN's, if it is there
};

// Runs a pass on (y, x, w), of which one is the result.
void run(ConvPass pass, const Method& method, Stream stream, const Tensor& y, const Tensor& x,
         const Tensor& w, const Tensor& dw, const Conv2dOptions& o) {
  const auto [name, step, algorithm, vendor] = method;
  if (vendor) {
    const ProviderGuard guard(Provider::Vendor);
    switch (pass) {
      case ConvPass::Forward: return kernels::conv2d(y, x, w, {}, o);
      case ConvPass::BackwardInput: return kernels::conv2d_backward_input(x, y, w, {}, o);
      case ConvPass::BackwardWeight: return kernels::conv2d_backward_weight(dw, y, x, o);
    }
  }
  const bool hopper = step == ConvStep::Hopper;
  switch (pass) {
    case ConvPass::Forward:
      if (hopper) return cuda::conv2d_hopper(algorithm, stream, y, x, w, {}, o);
      return cuda::conv2d(step, stream, y, x, w, {}, o);
    case ConvPass::BackwardInput:
      if (hopper) return cuda::conv2d_backward_input_hopper(algorithm, stream, x, y, w, {}, o);
      return cuda::conv2d_backward_input(step, stream, x, y, w, {}, o);
    case ConvPass::BackwardWeight:
      if (hopper) return cuda::conv2d_backward_weight_hopper(algorithm, stream, dw, y, x, o);
      return cuda::conv2d_backward_weight(step, stream, dw, y, x, o);
  }
}

Prepared prepare(const Layer& layer, ConvPass pass, const Method& method, bool small) {
  const Conv2dOptions o{.stride = layer.stride, .padding = layer.taps / 2};
  const int64_t out = o.out_h(layer.side, layer.taps);
  const int64_t n = small ? 1 : layer.images;
  const Tensor w = channels_last_noise({layer.filters, layer.channels, layer.taps, layer.taps});
  const Tensor dw = empty(w.shape(), {DType::Float32, w.device()});
  const double bytes = 2.0 * static_cast<double>(n * (layer.channels * layer.side * layer.side +
                                                      layer.filters * out * out));
  std::vector<Tensor> xs;
  std::vector<Tensor> ys;
  const int sets = small ? 1 : sets_for(bytes);
  for (int set = 0; set < sets; ++set) {
    xs.push_back(channels_last_noise({n, layer.channels, layer.side, layer.side}));
    ys.push_back(channels_last_noise({n, layer.filters, out, out}));
  }
  Prepared prepared;
  prepared.sets = sets;
  prepared.run = [=](Stream stream, int set) {
    const auto i = static_cast<size_t>(set);
    run(pass, method, stream, ys[i], xs[i], w, dw, o);
  };
  prepared.error = [=] {
    const Tensor& result = pass == ConvPass::Forward         ? ys[0]
                           : pass == ConvPass::BackwardInput ? xs[0]
                                                             : dw;
    const Tensor got = empty_like(result);
    kernels::copy(got, result);
    run(pass, {"", ConvStep::TensorCores}, current_stream(w.device()), ys[0], xs[0], w, dw, o);
    return relative_error(got, result);
  };
  return prepared;
}

std::vector<Variant> variants() {
  static constexpr const char* kPasses[] = {"y", "dx", "dw"};
  std::vector<Variant> all;
  for (const Layer& layer : kLayers)
    for (int number = 0; number < 3; ++number) {
      const auto pass = static_cast<ConvPass>(number);
      const Conv2dOptions o{.stride = layer.stride, .padding = layer.taps / 2};
      const ConvProblem problem{.pass = pass,
                                .dtype = DType::BFloat16,
                                .x = {layer.images, layer.channels, layer.side, layer.side},
                                .w = {layer.filters, layer.channels, layer.taps, layer.taps},
                                .options = o};
      const int64_t out = o.out_h(layer.side, layer.taps);
      const auto add = [&](const Method& method, double predicted) {
        all.push_back(
            {.kernel = std::string("conv2d ") + kPasses[number],
             .name = method.name,
             .shape = str(layer.channels, " -> ", layer.filters, ", ", layer.side, "x", layer.side,
                          ", ", layer.taps, "x", layer.taps, ", stride ", layer.stride),
             .operations = 2.0 * static_cast<double>(layer.images * out * out * layer.filters *
                                                     layer.channels * layer.taps * layer.taps),
             .bytes = 2.0 *
                      static_cast<double>(layer.images * (layer.channels * layer.side * layer.side +
                                                          layer.filters * out * out)),
             .most_error = 0.01,
             .predicted_us = predicted,
             .prepare = [=](bool small) { return prepare(layer, pass, method, small); }});
      };
      const HopperConv chosen = cuda::hopper_conv(problem);
      const HopperConv general =
          pass == ConvPass::BackwardWeight ? HopperConv::Weight : HopperConv::Im2col;
      const double predicted = layer.predicted_us[number];
      const bool shared = cuda::shared_image_supports(problem);
      const bool borders = chosen != general;
      if (shared) add({"shared image", ConvStep::SharedImage}, predicted);
      if (borders) add({"border tiles", ConvStep::Hopper, chosen}, predicted);
      add({"im2col", ConvStep::Hopper, general}, shared || borders ? 0 : predicted);
      add({"mma.sync", ConvStep::TensorCores}, 0);
      add({"cuDNN", ConvStep::TensorCores, HopperConv::None, true}, 0);
    }
  return all;
}
[[maybe_unused]] const bool registered = register_variants(variants());

}  // namespace
}  // namespace ringgrad::lab
