// Two published networks that train in seconds. speedrun.h trains them.
#pragma once

#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/layers.h"

namespace ringgrad::models {

// The network of K. Jordan's "94% on CIFAR-10 in 3.29 seconds" (2024). It begins with 2×2 whitening
// filters that are not trained. Three groups follow (convolution, max pool, batch norm, GELU,
// convolution, batch norm, GELU), then a last pool, and a linear layer whose output is divided by
// its width. Batch norm learns biases only, and convolutions begin as the identity. 1.97 million
// parameters for CIFAR-10.
class Airbench : public nn::Module {
 public:
  // Throws Error unless images are 25 to 48 pixels wide. Other sizes do not end in one pixel.
  explicit Airbench(int64_t in_channels = 3, int64_t num_classes = 10, int64_t image_size = 32);
  Tensor forward(const Tensor& x) override;  // [N, in_channels, S, S] → [N, num_classes]

  nn::Conv2d whiten;  // its weight comes from nn::init::whitening_() of the training images

 private:
  struct Group : nn::Module {
    Group(int64_t in_channels, int64_t out_channels);
    Tensor forward(const Tensor& x) override;
    nn::Conv2d conv1;
    nn::Conv2d conv2;
    nn::BatchNorm2d norm1;
    nn::BatchNorm2d norm2;
  };
  Group group1_;
  Group group2_;
  Group group3_;

 public:
  nn::Linear head;
};

// A network that reaches 99 % on MNIST in one epoch (github.com/tuomaso/train_mnist_fast): two
// convolutions and two linear layers. The numbers of filters fill vector registers; the original
// has 24 and 32. 317,402 parameters for MNIST.
class QuickNet : public nn::Module {
 public:
  // Throws Error for images of less than 16 pixels.
  explicit QuickNet(int64_t in_channels = 1, int64_t num_classes = 10, int64_t image_size = 28);
  Tensor forward(const Tensor& x) override;  // [N, in_channels, S, S] → [N, num_classes]

 private:
  nn::Conv2d conv1_;
  nn::Conv2d conv2_;
  nn::Linear fc1_;
  nn::Linear fc2_;
};

}  // namespace ringgrad::models
