#include "ringgrad/models/convnet.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::models {
namespace {

constexpr int64_t kChannels1 = 16;
constexpr int64_t kChannels2 = 32;

// Returns the number of pixels of the last maps, which the linear layer reads. Each side was halved
// twice.
int64_t convnet_pixels(int64_t image_size) {
  CHECK(image_size >= 4, "ConvNet: images of ", image_size,
        " pixels, expected at least 4: it halves them twice");
  return (image_size / 4) * (image_size / 4);
}

}  // namespace

ConvNet::Layer::Layer(int64_t in_channels, int64_t out_channels)
    : conv(in_channels, out_channels, 5, {.padding = 2}), bn(out_channels) {
  register_module("0", conv);
  register_module("1", bn);
}

Tensor ConvNet::Layer::forward(const Tensor& x) {
  return bn(conv(x), {.activation = Activation::Relu, .max_pool = 2});
}

ConvNet::ConvNet(ConvNetOptions options)
    : layer1_(options.in_channels, kChannels1),
      layer2_(kChannels1, kChannels2),
      fc_(convnet_pixels(options.image_size) * kChannels2, options.num_classes) {
  register_module("layer1", layer1_);
  register_module("layer2", layer2_);
  register_module("fc", fc_);
}

Tensor ConvNet::forward(const Tensor& x) { return fc_(flatten(layer2_(layer1_(x)), 1)); }

}  // namespace ringgrad::models
