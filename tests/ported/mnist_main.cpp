// The network of PyTorch's Python example mnist/main.py, with its options:
//   mnist_main [--data NAME] [--epochs N] [--lr F] [--gamma F] [--seed N] [--steps N]
//              [--save-model FILE] [--accuracy F]
#include <cstdio>
#include <map>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

class Net : public nn::Module {
 public:
  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("dropout1", dropout1);
    register_module("dropout2", dropout2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = conv1(images);
    x = relu(x);
    x = conv2(x);
    x = relu(x);
    x = max_pool2d(x, 2);
    x = dropout1(x);
    x = flatten(x, 1);
    x = fc1(x);
    x = relu(x);
    x = dropout2(x);
    x = fc2(x);
    return log_softmax(x, 1);
  }

 private:
  nn::Conv2d conv1{1, 32, 3, {.stride = 1}};
  nn::Conv2d conv2{32, 64, 3, {.stride = 1}};
  nn::Dropout dropout1{0.25};
  nn::Dropout dropout2{0.5};
  nn::Linear fc1{9216, 128};
  nn::Linear fc2{128, 10};
};

static void train(nn::Module& model, DataLoader& loader, optim::Optimizer& optimizer, int epoch,
                  int64_t steps) {
  model.train();
  for (int64_t step = 0; const Batch& batch : loader) {
    if (step == steps) break;
    optimizer.zero_grad();
    const Tensor loss = nll_loss(model(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    if (step++ % 10 == 0)
      std::printf("epoch %d: step %ld, loss %.6f\n", epoch, step, loss.item<float>());
  }
}

static double test(nn::Module& model, DataLoader& loader, int64_t samples) {
  NoGradGuard no_grad;
  model.eval();
  double loss = 0;
  double correct = 0;
  for (const Batch& batch : loader) {
    const Tensor output = model(batch.data);
    loss += nll_loss(output, batch.target, {.reduction = Reduction::Sum}).item<double>();
    correct +=
        output.argmax(1, /*keepdim=*/true).eq(batch.target.view({-1, 1})).sum().item<double>();
  }
  const double n = static_cast<double>(samples);
  std::printf("test: average loss %.4f, accuracy %.4f\n", loss / n, correct / n);
  return correct / n;
}

int main(int argc, char** argv) {
  std::map<std::string, std::string> options = {
      {"--data", "digits"}, {"--epochs", "14"}, {"--lr", "1"},      {"--steps", "-1"},
      {"--gamma", "0.7"},   {"--seed", "1"},    {"--accuracy", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  const auto number = [&](const char* name) { return std::stod(options.at(name)); };

  manual_seed(std::stoull(options["--seed"]));
  const ImageTransform normalize = {.mean = {0.1307f}, .std = {0.3081f}};
  const ImageDataset dataset1 = load_dataset(options["--data"], Split::Train);
  const ImageDataset dataset2 = load_dataset(options["--data"], Split::Test);
  DataLoader train_loader(dataset1, std::make_shared<RandomSampler>(dataset1.size()),
                          {.batch_size = 64, .num_workers = 1, .transform = normalize});
  DataLoader test_loader(dataset2, std::make_shared<SequentialSampler>(dataset2.size()),
                         {.batch_size = 1000, .num_workers = 1, .transform = normalize});

  Net model;
  optim::Adadelta optimizer(model.parameters(), {.lr = number("--lr")});
  optim::LRScheduler scheduler(optimizer,
                               optim::StepLR{.step_size = 1, .gamma = number("--gamma")});
  double accuracy = 0;
  for (int epoch = 1; epoch <= std::stoi(options["--epochs"]); ++epoch) {
    train(model, train_loader, optimizer, epoch, std::stoll(options["--steps"]));
    accuracy = test(model, test_loader, dataset2.size());
    scheduler.step();
  }
  if (options.contains("--save-model"))
    nn::save_safetensors(options["--save-model"], model.state_dict());
  return accuracy >= number("--accuracy") ? 0 : 1;
}
