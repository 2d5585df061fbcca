#include "ringgrad/models/speed_networks.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/init.h"

namespace ringgrad::models {
namespace {

constexpr int64_t kWhitened = 2;  // pixels on each side of a patch
constexpr int64_t kWidth1 = 64;
constexpr int64_t kWidth = 256;
constexpr nn::BatchNorm2dOptions kNorm{.eps = 1e-12, .momentum = 0.4};

nn::Conv2d same_size(int64_t in_channels, int64_t out_channels) {
  return nn::Conv2d(in_channels, out_channels, 3, {.padding = 1, .bias = false});
}

// Returns the number of pixels of QuickNet's last maps: 5×5, halved, 3×3, halved.
int64_t quick_pixels(int64_t image_size) {
  CHECK(image_size >= 16, "QuickNet: images of ", image_size, " pixels, expected at least 16");
  const int64_t side = ((image_size - 4) / 2 - 2) / 2;
  return side * side;
}

}  // namespace

Airbench::Group::Group(int64_t in_channels, int64_t out_channels)
    : conv1(same_size(in_channels, out_channels)),
      conv2(same_size(out_channels, out_channels)),
      norm1(out_channels, kNorm),
      norm2(out_channels, kNorm) {
  register_module("conv1", conv1);
  register_module("norm1", norm1);
  register_module("conv2", conv2);
  register_module("norm2", norm2);
  for (nn::Conv2d* conv : {&conv1, &conv2})
    nn::init::dirac_(conv->weight.detach().narrow(0, 0, conv->weight.size(1)));
  for (nn::BatchNorm2d* norm : {&norm1, &norm2}) norm->weight.set_requires_grad(false);
}

Tensor Airbench::Group::forward(const Tensor& x) {
  const Tensor y = gelu(norm1(max_pool2d(conv1(x), {.kernel = 2})));
  return gelu(norm2(conv2(y)));
}

Airbench::Airbench(int64_t in_channels, int64_t num_classes, int64_t image_size)
    : whiten(in_channels, 2 * in_channels * kWhitened * kWhitened, kWhitened),
      group1_(whiten.weight.size(0), kWidth1),
      group2_(kWidth1, kWidth),
      group3_(kWidth, kWidth),
      head(kWidth, num_classes, {.bias = false}) {
  CHECK(image_size >= 25 && image_size <= 48, "Airbench: images of ", image_size,
        " pixels, expected 25 to 48");
  register_module("whiten", whiten);
  register_module("group1", group1_);
  register_module("group2", group2_);
  register_module("group3", group3_);
  register_module("head", head);
  whiten.weight.set_requires_grad(false);
  const NoGradGuard no_grad;
  copy_(head.weight, head.weight / std(head.weight));
}

Tensor Airbench::forward(const Tensor& x) {
  const Tensor y = max_pool2d(group3_(group2_(group1_(gelu(whiten(x))))), {.kernel = 3});
  return head(flatten(y, 1)) / static_cast<double>(kWidth);
}

QuickNet::QuickNet(int64_t in_channels, int64_t num_classes, int64_t image_size)
    : conv1_(in_channels, 16, 5),
      conv2_(16, 48, 3),
      fc1_(quick_pixels(image_size) * 48, 256),
      fc2_(256, num_classes) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
}

Tensor QuickNet::forward(const Tensor& x) {
  // This equals pooling the ReLUs, and computes them on a quarter of the pixels.
  Tensor y = relu(max_pool2d(conv1_(x), {.kernel = 2}));
  y = relu(max_pool2d(conv2_(y), {.kernel = 2}));
  return fc2_(relu(fc1_(flatten(y, 1))));
}

}  // namespace ringgrad::models
