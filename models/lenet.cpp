#include "ringgrad/models/lenet.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::models {
namespace {

// Returns the pixels that remain after halving, an unpadded 5×5 convolution, and halving again.
int64_t lenet_pixels(int64_t image_size) {
  CHECK(image_size >= 12, "LeNet: images of ", image_size, " pixels, expected at least 12");
  const int64_t side = (image_size / 2 - 4) / 2;
  return side * side;
}

}  // namespace

LeNet::LeNet(ConvNetOptions options)
    : conv1_(options.in_channels, 6, 5, {.padding = 2}),
      conv2_(6, 16, 5),
      fc1_(lenet_pixels(options.image_size) * 16, 120),
      fc2_(120, 84),
      fc3_(84, options.num_classes) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
  register_module("fc3", fc3_);
}

Tensor LeNet::forward(const Tensor& x) {
  Tensor y = max_pool2d(relu(conv1_(x)), {.kernel = 2});
  y = max_pool2d(relu(conv2_(y)), {.kernel = 2});
  return fc3_(relu(fc2_(relu(fc1_(flatten(y, 1))))));
}

}  // namespace ringgrad::models
