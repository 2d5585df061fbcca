// The network of most topics, small enough to print: linear layers of one width, "fc1" … "fcN",
// with ReLU between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/nn/layers.h"

namespace ringgrad::program {

class Chain : public nn::Module {
 public:
  Chain(int layers, int64_t width) {
    for (int i = 1; i <= layers; ++i) {
      layers_.push_back(
          register_module("fc" + std::to_string(i), std::make_shared<nn::Linear>(width, width)));
    }
  }

  // x [N, width] → [N, width]
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (size_t i = 0; i < layers_.size(); ++i)
      y = after_layer(i, i == 0 ? (*layers_[i])(y) : (*layers_[i])(relu(y)));
    return y;
  }

 protected:
  // Lets a topic interfere: sees the output of layer i, and returns the input of the next one.
  virtual Tensor after_layer(size_t, const Tensor& y) { return y; }

 private:
  std::vector<std::shared_ptr<nn::Linear>> layers_;
};

// The loss of this rank's own batch of noise.
inline Tensor loss_on_noise(nn::Module& network, int64_t samples, int64_t width, int rank) {
  manual_seed(static_cast<uint64_t>(rank) + 1);
  const Tensor x = empty({samples, width});
  normal_(x, 0, 1);
  return cross_entropy(network(x), zeros({samples}, {.dtype = DType::Int64}));
}

}  // namespace ringgrad::program
