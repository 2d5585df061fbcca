// A convolutional network on MNIST, as PyTorch's C++ example trains it:
//   mnist [DATA SET] [EPOCHS] [ACCURACY WANTED]
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

struct Net : nn::Module {
  nn::Conv2d conv1{1, 10, 5};
  nn::Conv2d conv2{10, 20, 5};
  nn::Dropout2d conv2_drop;
  nn::Linear fc1{320, 50};
  nn::Linear fc2{50, 10};
  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv2_drop", conv2_drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = relu(max_pool2d(conv1(images), 2));
    x = relu(max_pool2d(conv2_drop(conv2(x)), 2));
    x = x.view({-1, 320});
    x = relu(fc1(x));
    x = dropout(x, 0.5, is_training());
    x = fc2(x);
    return log_softmax(x, 1);
  }
};

static void train(int epoch, Net& model, DataLoader& loader, optim::Optimizer& optimizer) {
  model.train();
  int64_t done = 0;
  for (const Batch& batch : loader) {
    optimizer.zero_grad();
    const Tensor loss = nll_loss(model(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    if (done++ % 100 == 0)
      std::printf("epoch %d: batch %ld of %ld, loss %.4f\n", epoch, done, loader.size(),
                  loss.item<float>());
  }
}

static double test(Net& model, DataLoader& loader, int64_t samples) {
  NoGradGuard no_grad;
  model.eval();
  double loss = 0;
  int64_t correct = 0;
  for (const Batch& batch : loader) {
    const Tensor output = model(batch.data);
    loss += nll_loss(output, batch.target, {.reduction = Reduction::Sum}).item<float>();
    correct += output.argmax(1).eq(batch.target).sum().item<int64_t>();
  }
  const double accuracy = static_cast<double>(correct) / static_cast<double>(samples);
  std::printf("test: average loss %.4f, accuracy %.4f\n", loss / static_cast<double>(samples),
              accuracy);
  return accuracy;
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "digits";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 10;
  const double wanted = argc > 3 ? std::atof(argv[3]) : 0;

  manual_seed(1);
  Net model;
  const ImageTransform normalize = {.mean = {0.1307f}, .std = {0.3081f}};
  const ImageDataset train_set = load_dataset(name, Split::Train);
  const ImageDataset test_set = load_dataset(name, Split::Test);
  DataLoader train_loader(train_set, std::make_shared<RandomSampler>(train_set.size()),
                          {.batch_size = 64, .transform = normalize});
  DataLoader test_loader(test_set, std::make_shared<SequentialSampler>(test_set.size()),
                         {.batch_size = 1000, .transform = normalize});
  optim::SGD optimizer(model.parameters(), {.lr = 0.01, .momentum = 0.5});
  double accuracy = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    train(epoch, model, train_loader, optimizer);
    accuracy = test(model, test_loader, test_set.size());
  }
  return accuracy >= wanted ? 0 : 1;
}
