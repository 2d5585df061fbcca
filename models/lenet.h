// LeNet-5 (LeCun, Bottou, Bengio & Haffner 1998) with ReLU and max pooling, as everybody trains it today. 61,706
// parameters for 28×28 images of one channel.
#pragma once

#include "ringgrad/nn/conv2d.h"
#include "ringgrad/nn/linear.h"

namespace ringgrad::models {

struct LeNetOptions {
  int64_t in_channels = 1, num_classes = 10, image_size = 28;
};

class LeNet : public nn::Module {
 public:
  explicit LeNet(LeNetOptions options = {});
  Tensor forward(const Tensor& x) override;  // [N, in_channels, S, S] → [N, num_classes]

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace ringgrad::models
