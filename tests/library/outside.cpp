// A program as a user of libtorch would write it: a network, a loss, an optimizer, two hundred
// steps.
#include <cstdio>

#include <ringgrad/nn.h>

using namespace ringgrad;

struct Net : nn::Module {
  nn::Linear fc1{2, 16};
  nn::Linear fc2{16, 2};
  Net() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

// Without padding, of which g++ 12 makes one of 1 if it may.
struct Images : nn::Module {
  nn::Conv2d conv{1, 6, 5};
  Images() { register_module("conv", conv); }
  Tensor forward(const Tensor& x) override { return conv(x); }
};

// The project's own core/device.h beside ringgrad's.
static_assert(OwnDevice{}.number == 7 && DeviceType::CPU != DeviceType::CUDA);

int main() {
  manual_seed(1);
  Net model;
  optim::SGD optimizer(model.parameters(), {.lr = 0.5, .momentum = 0.9});
  const Tensor x = tensor<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2});  // exclusive or
  const Tensor target = tensor<int64_t>({0, 1, 1, 0});
  for (int step = 0; step < 200; ++step) {
    optimizer.zero_grad();
    cross_entropy(model(x), target).backward();
    optimizer.step();
  }
  const float loss = cross_entropy(model(x), target).item<float>();
  std::printf("loss %.4f\n", loss);
  const Shape seen = Images()(ones({1, 1, 8, 8})).shape();
  return loss < 0.05f && seen == Shape{1, 6, 4, 4} ? 0 : 1;
}
