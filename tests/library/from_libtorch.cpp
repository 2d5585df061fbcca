// docs/from_libtorch.md shows it beside libtorch's: the program of its first page. DATA [EPOCHS].
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

struct Net : nn::Module {
  nn::Linear fc1{784, 64};
  nn::Linear fc2{64, 10};
  Net() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = relu(fc1(images.reshape({images.size(0), 784})));
    x = dropout(x, 0.5, is_training());
    return log_softmax(fc2(x), 1);
  }
};

int main(int argc, char** argv) {
  const ImageDataset data = load_dataset(argc > 1 ? argv[1] : "mnist", Split::Train);
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 10;
  Net net;
  DataLoader loader(data, std::make_shared<RandomSampler>(data.size()), {.batch_size = 64});
  optim::SGD optimizer(net.parameters(), {.lr = 0.01});
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    Tensor loss;
    for (const Batch& batch : loader) {
      optimizer.zero_grad();
      loss = nll_loss(net(batch.data), batch.target);
      loss.backward();
      optimizer.step();
    }
    std::printf("epoch %d: loss %.4f\n", epoch, loss.item<float>());
    nn::save_safetensors("net.safetensors", net.state_dict());
  }
}
