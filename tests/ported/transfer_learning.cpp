// A network that knows the digits 0 to 4 learns 5 to 9 by a new last layer alone. PyTorch's C++
// example teaches a ResNet to tell dogs from cats in this way. The other layers are loaded from a
// file, and frozen.
//   transfer_learning [EPOCHS] [ACCURACY WANTED] [FILE]
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr int64_t kFeatures = 64;

// All but the last layer.
static std::shared_ptr<nn::Sequential> make_features() {
  return std::make_shared<nn::Sequential>(
      nn::Conv2d(1, 16, 5, {.bias = false}), nn::BatchNorm2d(16), nn::ReLU(), nn::MaxPool2d(2),
      nn::Conv2d(16, kFeatures, 5, {.bias = false}), nn::BatchNorm2d(kFeatures), nn::ReLU(),
      nn::AdaptiveAvgPool2d(1), nn::Flatten());
}

struct Classifier : nn::Module {
  std::shared_ptr<nn::Sequential> features;
  nn::Linear fc{kFeatures, 5};
  explicit Classifier(std::shared_ptr<nn::Sequential> trained)
      : features(register_module("features", std::move(trained))) {
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override { return fc((*features)(x)); }
};

// The digits from `first` on, five of them, which become the classes 0 to 4.
static ImageDataset five_digits(Split split, int64_t first) {
  const ImageDataset all = load_dataset("digits", split);
  const Mask chosen =
      (all.labels >= static_cast<double>(first)) & (all.labels < static_cast<double>(first + 5));
  const Tensor places = masked_select(arange(all.size()), chosen);
  const auto begin = all.classes.begin() + first;
  return {"five digits",
          all.images.index_select(0, places),
          all.labels.index_select(0, places) - static_cast<double>(first),
          {begin, begin + 5}};
}

static DataLoader make_loader(const ImageDataset& data) {
  return DataLoader(data, std::make_shared<RandomSampler>(data.size()),
                    {.batch_size = 64, .transform = {.mean = {0.13f}, .std = {0.31f}}});
}

static void train(Classifier& model, const ImageDataset& data, optim::Optimizer& optimizer,
                  int epochs) {
  DataLoader loader = make_loader(data);
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double sum = 0;
    for (const Batch& batch : loader) {
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(model(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      sum += loss.item<float>();
    }
    std::printf("epoch %d: loss %.4f\n", epoch, sum / static_cast<double>(loader.size()));
  }
}

static double test(Classifier& model, const ImageDataset& data) {
  NoGradGuard no_grad;
  model.eval();
  int64_t correct = 0;
  DataLoader loader = make_loader(data);
  for (const Batch& batch : loader)
    correct += model(batch.data).argmax(1).eq(batch.target).sum().item<int64_t>();
  return static_cast<double>(correct) / static_cast<double>(data.size());
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::atoi(argv[1]) : 10;
  const double wanted = argc > 2 ? std::atof(argv[2]) : 0;
  const std::string file = argc > 3 ? argv[3] : "features.safetensors";
  manual_seed(1);
  {
    Classifier model(make_features());
    optim::Adam optimizer(model.parameters(), {.lr = 2e-3});
    train(model, five_digits(Split::Train, 0), optimizer, 2);
    std::printf("0 to 4: accuracy %.4f\n", test(model, five_digits(Split::Test, 0)));
    nn::save_safetensors(file, model.features->state_dict());
  }
  const auto features = make_features();
  features->load_state_dict(nn::load_weights(file).tensors);
  for (const Tensor& parameter : features->parameters()) parameter.requires_grad_(false);
  Classifier model(features);
  features->eval();  // its running statistics stay, too
  nn::NamedTensors before;
  for (const auto& [name, tensor] : features->state_dict())
    before.emplace_back(name, tensor.clone());

  optim::Adam optimizer(model.fc.parameters(), {.lr = 1e-2});
  train(model, five_digits(Split::Train, 5), optimizer, epochs);
  const double accuracy = test(model, five_digits(Split::Test, 5));
  std::printf("5 to 9: accuracy %.4f\n", accuracy);

  bool kept = true;
  for (size_t i = 0; i < before.size(); ++i)
    kept &= equal(before[i].second, features->state_dict()[i].second);
  return kept && accuracy >= wanted ? 0 : 1;
}
