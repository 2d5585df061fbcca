#include "ringgrad/models/convnet.h"

#include "ringgrad/autograd/ops/pool.h"
#include "ringgrad/autograd/ops/view.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad::models {
namespace {

constexpr int64_t kChannels1 = 16, kChannels2 = 32;

ConvNetOptions checked(ConvNetOptions options) {
  CHECK(options.image_size >= 4, "ConvNet: images of ", options.image_size,
        " pixels, expected at least 4: it halves them twice");
  return options;
}

}  // namespace

ConvNet::Layer::Layer(int64_t in_channels, int64_t out_channels)
    : conv(in_channels, out_channels, 5, {.padding = 2}), bn(out_channels) {
  register_module("0", conv);
  register_module("1", bn);
}

Tensor ConvNet::Layer::forward(const Tensor& x) {
  return max_pool2d(bn(conv(x), {.activation = Activation::Relu}), {.kernel = 2});
}

ConvNet::ConvNet(ConvNetOptions options)
    : layer1_(checked(options).in_channels, kChannels1),
      layer2_(kChannels1, kChannels2),
      fc_((options.image_size / 4) * (options.image_size / 4) * kChannels2, options.num_classes) {
  register_module("layer1", layer1_);
  register_module("layer2", layer2_);
  register_module("fc", fc_);
}

Tensor ConvNet::forward(const Tensor& x) { return fc_(flatten(layer2_(layer1_(x)), 1)); }

}  // namespace ringgrad::models
