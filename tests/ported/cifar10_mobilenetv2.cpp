// MobileNetV2 (Sandler et al. 2018), with the parts and names of torchvision, on 32 × 32 pixels,
// trained as kuangliu's pytorch-cifar trains its networks: so many times narrower than the paper's,
// and the best state is saved:
//   cifar10_mobilenetv2 [DATA SET] [EPOCHS] [ACCURACY WANTED] [WIDTH] [STAGES] [FIRST STRIDE] [LR]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

// ---- the network --------------------------------------------------------------------------------
// v as a multiple of the divisor, and not less than nine tenths of v.
static int64_t make_divisible(double v, int64_t divisor) {
  int64_t new_v = std::max(divisor, static_cast<int64_t>(v + divisor / 2.0) / divisor * divisor);
  if (static_cast<double>(new_v) < 0.9 * v) new_v += divisor;
  return new_v;
}

struct ConvBNReLU : nn::Sequential {
  ConvBNReLU(int64_t in_planes, int64_t out_planes, int64_t kernel_size = 3, int64_t stride = 1,
             int64_t groups = 1)
      : nn::Sequential(nn::Conv2d(in_planes, out_planes, kernel_size,
                                  {.stride = stride,
                                   .padding = (kernel_size - 1) / 2,
                                   .groups = groups,
                                   .bias = false}),
                       nn::BatchNorm2d(out_planes), nn::ReLU6()) {}
};

struct InvertedResidual : nn::Module {
  bool use_res_connect;
  nn::Sequential conv;
  InvertedResidual(int64_t inp, int64_t oup, int64_t stride, int64_t expand_ratio)
      : use_res_connect(stride == 1 && inp == oup) {
    const int64_t hidden_dim = inp * expand_ratio;
    if (expand_ratio != 1) conv.push_back(ConvBNReLU(inp, hidden_dim, 1));
    conv.push_back(ConvBNReLU(hidden_dim, hidden_dim, 3, stride, hidden_dim));
    conv.push_back(nn::Conv2d(hidden_dim, oup, 1, {.bias = false}));
    conv.push_back(nn::BatchNorm2d(oup));
    register_module("conv", conv);
  }
  Tensor forward(const Tensor& x) override { return use_res_connect ? x + conv(x) : conv(x); }
};

// Expansion, channels, blocks, and the first block's stride, which in the second stage is 1 and not
// 2, for small images, as the first convolution's is by default.
struct Stage {
  int64_t t;
  int64_t c;
  int64_t n;
  int64_t s;
};
static const std::vector<Stage> inverted_residual_setting = {
    {1, 16, 1, 1}, {6, 24, 2, 1},  {6, 32, 3, 2}, {6, 64, 4, 2},
    {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

struct MobileNetV2 : nn::Module {
  nn::Sequential features;
  nn::Sequential classifier;
  MobileNetV2(int64_t num_classes, double width_mult, size_t stages, int64_t first_stride) {
    int64_t input_channel = make_divisible(32 * width_mult, 8);
    const int64_t last_channel = make_divisible(1280 * width_mult, 8);
    features.push_back(ConvBNReLU(3, input_channel, 3, first_stride));
    for (size_t stage = 0; stage < std::min(stages, inverted_residual_setting.size()); ++stage) {
      const auto [t, c, n, s] = inverted_residual_setting[stage];
      const int64_t output_channel = make_divisible(static_cast<double>(c) * width_mult, 8);
      for (int64_t i = 0; i < n; ++i) {
        features.push_back(InvertedResidual(input_channel, output_channel, i == 0 ? s : 1, t));
        input_channel = output_channel;
      }
    }
    features.push_back(ConvBNReLU(input_channel, last_channel, 1));
    classifier.push_back(nn::Dropout(0.2));
    classifier.push_back(nn::Linear(last_channel, num_classes));
    register_module("features", features);
    register_module("classifier", classifier);
    for (const auto& [name, m] : named_modules()) {
      if (auto* conv = dynamic_cast<nn::Conv2d*>(m)) {
        nn::init::kaiming_normal_(conv->weight, {.mode = nn::init::FanMode::FanOut});
        if (conv->bias.defined()) nn::init::zeros_(conv->bias);
      } else if (auto* norm = dynamic_cast<nn::BatchNorm2d*>(m)) {
        nn::init::ones_(norm->weight);
        nn::init::zeros_(norm->bias);
      } else if (auto* linear = dynamic_cast<nn::Linear*>(m)) {
        nn::init::normal_(linear->weight, 0, 0.01);
        nn::init::zeros_(linear->bias);
      }
    }
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = features(images);
    x = adaptive_avg_pool2d(x, {1, 1});
    x = flatten(x, 1);
    return classifier(x);
  }
};

// ---- training -----------------------------------------------------------------------------------
static void train(int epoch, nn::Module& net, DataLoader& loader, optim::Optimizer& optimizer) {
  net.train();
  nn::CrossEntropyLoss criterion;
  double train_loss = 0;
  double correct = 0;
  double total = 0;
  for (const Batch& batch : loader) {
    optimizer.zero_grad();
    const Tensor outputs = net(batch.data);
    const Tensor loss = criterion(outputs, batch.target);
    loss.backward();
    optimizer.step();
    train_loss += loss.item<double>() * static_cast<double>(batch.size());
    const auto [_, predicted] = outputs.max(1);
    total += static_cast<double>(batch.target.size(0));
    correct += predicted.eq(batch.target).sum().item<double>();
  }
  std::printf("epoch %d: loss %.4f, accuracy %.4f, lr %.4f\n", epoch, train_loss / total,
              correct / total, optimizer.lr());
}

static double test(nn::Module& net, DataLoader& loader) {
  net.eval();
  NoGradGuard no_grad;
  double correct = 0;
  double total = 0;
  for (const Batch& batch : loader) {
    const auto [_, predicted] = net(batch.data).max(1);
    total += static_cast<double>(batch.target.size(0));
    correct += predicted.eq(batch.target).sum().item<double>();
  }
  std::printf("test: accuracy %.4f\n", correct / total);
  return correct / total;
}

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "cifar10";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 200;
  const double wanted = argc > 3 ? std::atof(argv[3]) : 0;
  const double width = argc > 4 ? std::atof(argv[4]) : 1;
  const size_t stages = argc > 5 ? std::strtoul(argv[5], nullptr, 10) : 7;
  const int64_t first_stride = argc > 6 ? std::atoi(argv[6]) : 1;
  const double lr = argc > 7 ? std::atof(argv[7]) : 0.1;

  manual_seed(1);
  const std::vector<float> mean = {0.4914f, 0.4822f, 0.4465f};
  const std::vector<float> std = {0.2023f, 0.1994f, 0.2010f};
  const ImageDataset trainset = load_dataset(name, Split::Train);
  const ImageDataset testset = load_dataset(name, Split::Test);
  DataLoader trainloader(
      trainset, std::make_shared<RandomSampler>(trainset.size()),
      {.batch_size = 128,
       .num_workers = 2,
       .transform = {.augment = {.crop_padding = 4, .flip = true}, .mean = mean, .std = std}});
  DataLoader testloader(
      testset, std::make_shared<SequentialSampler>(testset.size()),
      {.batch_size = 100, .num_workers = 2, .transform = {.mean = mean, .std = std}});
  MobileNetV2 net(10, width, stages, first_stride);
  optim::SGD optimizer(net.parameters(), {.lr = lr, .momentum = 0.9, .weight_decay = 5e-4});
  optim::LRScheduler scheduler(optimizer, optim::CosineAnnealingLR{.t_max = epochs});
  double best_acc = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    train(epoch, net, trainloader, optimizer);
    const double acc = test(net, testloader);
    if (acc > best_acc) {
      std::filesystem::create_directories("checkpoint");
      nn::save_safetensors("checkpoint/ckpt.safetensors", net.state_dict(),
                           {{"acc", std::to_string(acc)}, {"epoch", std::to_string(epoch)}});
      best_acc = acc;
    }
    scheduler.step();
  }
  MobileNetV2 best(10, width, stages, first_stride);
  best.load_state_dict(nn::load_weights("checkpoint/ckpt.safetensors").tensors);
  return test(best, testloader) == best_acc && best_acc >= wanted ? 0 : 1;
}
