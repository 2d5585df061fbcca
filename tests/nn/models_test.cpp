// Networks: parameters counted and named as published, shapes, and that one step of training
// changes all of them.
#include <algorithm>
#include <cmath>
#include <map>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/models/convnet.h"
#include "ringgrad/models/lenet.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/models/resnet.h"
#include "ringgrad/models/speedrun.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::models_test {
using models::make_model;

namespace {

std::vector<std::string> names(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, tensor] : module.named_parameters()) all.push_back(name);
  return all;
}

bool has(const nn::Module& module, const std::string& name, const Shape& shape) {
  for (const auto& [own, tensor] : module.state_dict())
    if (own == name) return tensor.shape() == shape;
  return false;
}

}  // namespace

TEST_CASE("models: published numbers of parameters", "[quick]") {
  const models::ModelOptions gray{.in_channels = 1, .num_classes = 10, .image_size = 28};
  REQUIRE(make_model("cnn", gray)->num_parameters() == 29'034);
  REQUIRE(make_model("lenet", gray)->num_parameters() == 61'706);
  // He et al. 2015, table 6, gives them in millions: 0.27, 0.46, 0.66, 0.85, 1.7.
  const std::map<std::string, int64_t> cifar = {{"resnet20", 269'722},   {"resnet20b", 272'474},
                                                {"resnet32", 464'154},   {"resnet44", 658'586},
                                                {"resnet56", 853'018},   {"resnet110", 1'727'962},
                                                {"resnet18", 11'173'962}};
  for (const auto& [name, count] : cifar) {
    INFO(name);
    REQUIRE(make_model(name)->num_parameters() == count);
  }
}

TEST_CASE("models: torchvision's numbers of parameters") {
  const std::map<int, int64_t> imagenet = {
      {18, 11'689'512}, {34, 21'797'672}, {50, 25'557'032}, {101, 44'549'160}, {152, 60'192'808}};
  for (const auto& [depth, count] : imagenet) {
    INFO(depth);
    REQUIRE(models::ResNet(depth).num_parameters() == count);
  }
  REQUIRE(make_model("resnet50")->num_parameters() == 23'520'842);
}

TEST_CASE("models: names and shapes are torchvision's", "[quick]") {
  models::ResNet resnet(18, {.num_classes = 10});
  const auto all = names(resnet);
  REQUIRE(std::vector<std::string>(all.begin(), all.begin() + 6) ==
          std::vector<std::string>{"conv1.weight", "bn1.weight", "bn1.bias",
                                   "layer1.0.conv1.weight", "layer1.0.bn1.weight",
                                   "layer1.0.bn1.bias"});
  REQUIRE(all.back() == "fc.bias");
  REQUIRE(has(resnet, "conv1.weight", {64, 3, 7, 7}));
  REQUIRE(has(resnet, "layer2.0.downsample.0.weight", {128, 64, 1, 1}));
  REQUIRE(has(resnet, "layer2.0.downsample.1.num_batches_tracked", {}));
  REQUIRE(has(resnet, "layer4.1.bn2.running_var", {512}));
  REQUIRE(!has(resnet, "layer1.0.downsample.0.weight", {64, 64, 1, 1}));

  REQUIRE(names(models::ConvNet()) ==
          std::vector<std::string>{"layer1.0.weight", "layer1.0.bias", "layer1.1.weight",
                                   "layer1.1.bias", "layer2.0.weight", "layer2.0.bias",
                                   "layer2.1.weight", "layer2.1.bias", "fc.weight", "fc.bias"});
  REQUIRE(names(models::LeNet()).front() == "conv1.weight");
  models::CifarResNet cifar(20);
  REQUIRE(has(cifar, "layer3.2.conv2.weight", {64, 64, 3, 3}));
  REQUIRE(has(cifar, "fc.weight", {10, 64}));
}

TEST_CASE("models: every parameter takes part in training", "[quick]") {
  manual_seed(1);
  for (const std::string name : {"cnn", "lenet", "resnet20", "resnet20b", "resnet18"}) {
    INFO(name);
    const bool gray = name == "cnn" || name == "lenet";
    const int64_t channels = gray ? 1 : 3;
    const int64_t size = gray ? 28 : 16;
    const auto model =
        make_model(name, {.in_channels = channels, .num_classes = 7, .image_size = size});
    optim::SGD optimizer(model->named_parameters(), {.lr = 0.1});
    const Tensor logits = model->forward(randn({3, channels, size, size}));
    REQUIRE(logits.shape() == Shape{3, 7});
    cross_entropy(logits, tensor<int64_t>({0, 6, 3})).backward();
    std::map<std::string, std::vector<float>> before;
    for (const auto& [parameter_name, parameter] : model->named_parameters())
      before[parameter_name] = to_vector<float>(parameter);
    optimizer.step();
    for (const auto& [parameter_name, parameter] : model->named_parameters()) {
      // Batch norm takes away what a bias in front of it adds: its gradient is zero but for
      // rounding.
      const bool shadowed = name == "cnn" && parameter_name.ends_with(".0.bias");
      INFO(parameter_name);
      const auto after = to_vector<float>(parameter);
      REQUIRE((shadowed || after != before[parameter_name]));
      REQUIRE(std::all_of(after.begin(), after.end(),
                          [](float value) { return std::isfinite(value); }));
    }
  }
}

TEST_CASE("models: bottlenecks, the ImageNet stem and evaluation", "[quick]") {
  models::ResNet resnet(50, {.num_classes = 5});
  resnet.eval();
  NoGradGuard guard;
  REQUIRE(resnet(randn({1, 3, 64, 64})).shape() == Shape{1, 5});
  REQUIRE(make_model("resnet18", {.num_classes = 5, .image_size = 64})
              ->state_dict()[0]
              .second.shape() == Shape{64, 3, 7, 7});
  REQUIRE(make_model("resnet18", {.num_classes = 5, .image_size = 32})
              ->state_dict()[0]
              .second.shape() == Shape{64, 3, 3, 3});
}

TEST_CASE("models: shortcuts by padding take every second pixel and put zeros around the channels",
          "[quick]") {
  models::BasicBlock block(2, 6, 2, models::Shortcut::Padding);
  for (const Tensor& p : block.parameters()) fill_(p, 0);  // what remains is the shortcut
  block.eval();                                            // there is one value per channel
  const Tensor y = block(tensor<float>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 2, 2, 2}));
  REQUIRE(y.shape() == Shape{1, 6, 1, 1});
  REQUIRE(to_vector<float>(y.detach()) == std::vector<float>{0, 0, 1, 5, 0, 0});
  REQUIRE_THROWS_AS(models::BasicBlock(2, 5, 2, models::Shortcut::Padding), Error);
}

TEST_CASE("models: convolutions begin as He et al. say", "[quick]") {
  manual_seed(3);
  for (const auto& [name, tensor] : make_model("resnet18")->named_parameters()) {
    if (name != "layer3.1.conv1.weight") continue;
    double square = 0;
    for (float value : to_vector<float>(tensor)) square += value * value;
    const double n = static_cast<double>(tensor.numel());
    REQUIRE(std::abs(square / n / (2.0 / (256 * 9)) - 1) < 5 * std::sqrt(2 / n));
  }
}

TEST_CASE("models: unknown names and impossible sizes are errors", "[quick]") {
  const std::string error = error_of<Error>([] { make_model("resnet19"); });
  REQUIRE(contains(error, "resnet19"));
  for (const std::string& name : models::model_names()) REQUIRE(contains(error, name));
  REQUIRE_THROWS_AS(models::ResNet(19), Error);
  REQUIRE_THROWS_AS(models::CifarResNet(21), Error);
  REQUIRE_THROWS_AS(make_model("cnn", {.in_channels = 1, .image_size = 3}), Error);
  REQUIRE_THROWS_AS(make_model("lenet", {.in_channels = 1, .image_size = 11}), Error);
}

TEST_CASE("models: networks made for speed have their papers' numbers of weights", "[quick]") {
  const auto weights = [](const char* name) {
    int64_t count = 0;
    for (const auto& [own, tensor] :
         make_model(name, models::usual_images(name))->named_parameters())
      count += tensor.numel();
    return count;
  };
  CHECK(weights("quick") == 16 * 26 + 48 * (16 * 9 + 1) + 256 * 1201 + 10 * 257);
  const int64_t groups = 9 * (24 * 64 + 64 * 64 + 64 * 256 + 3 * 256 * 256);
  const int64_t norms = 2 * 2 * (64 + 256 + 256);
  CHECK(weights("airbench") == 24 * 12 + 24 + groups + norms + 2560);
  REQUIRE_THROWS_AS(make_model("airbench", {.image_size = 24}), Error);
  REQUIRE_THROWS_AS(make_model("quick", {.in_channels = 1, .image_size = 15}), Error);
}

// Images have black borders, so that what is mirrored in from beyond them is black, too.
TEST_CASE("models: answers by views are means over moved and mirrored images", "[quick]") {
  manual_seed(1);
  const auto moved = [](const Tensor& x, int64_t down, int64_t right) {
    return contiguous(
        narrow(narrow(pad(x, {1, 1, 1, 1}), 2, 1 - down, x.size(2)), 3, 1 - right, x.size(3)));
  };
  const auto close = [](const Tensor& a, const Tensor& b) {
    return max(abs(a - b)).item<float>() < 1e-4f;
  };
  models::QuickNet digits;
  const Tensor x = pad(randn({3, 1, 24, 24}), {2, 2, 2, 2});
  Tensor sum = models::answer(digits, x);
  for (const auto& [down, right] : {std::pair{1, 0}, {-1, 0}, {0, 1}, {0, -1}})
    sum = sum + models::answer(digits, moved(x, down, right));
  REQUIRE(close(models::answer_by_views(digits, x), sum / 5));
  REQUIRE_FALSE(close(models::answer_by_views(digits, x), models::answer(digits, x)));

  models::Airbench colours;
  const Tensor y = pad(randn({5, 3, 28, 28}), {2, 2, 2, 2});
  const Tensor from_right = 31 - to(arange(32), DType::Int64);
  const auto both = [&](const Tensor& view) {
    return models::answer(colours, view) +
           models::answer(colours, index_select(view, 3, from_right));
  };
  const Tensor once = models::answer(colours, y);
  const Tensor answer = models::answer_by_views(colours, y);
  const Tensor views = (2 * both(y) + both(moved(y, 1, 1)) + both(moved(y, -1, -1))) / 8;
  std::vector<std::pair<float, int>> leads;
  for (int i = 0; i < 5; ++i) {
    std::vector<float> row = to_vector<float>(select(once, 0, i));
    std::sort(row.rbegin(), row.rend());
    leads.emplace_back(row[0] - row[1], i);
  }
  std::sort(leads.begin(), leads.end());
  for (int i = 0; i < 5; ++i)  // a quarter of five, rounded up
    REQUIRE(close(select(answer, 0, leads[i].second),
                  select(i < 2 ? views : once, 0, leads[i].second)));
}

TEST_CASE(
    "models: a speedrun over colours moves all but scales and whitening filters, "
    "also when it is run again") {
  const ImageDataset noise{
      "noise", to(rand({models::kAirbenchBatch, 3, 25, 25}) * 255, DType::UInt8),
      to(rand({models::kAirbenchBatch}) * 10, DType::Int64), std::vector<std::string>(10, "any")};
  models::Airbench network(3, 10, 25);
  network.whiten.bias.requires_grad_(false);  // as it is after more than three epochs
  std::vector<std::vector<float>> before;
  const auto after_step = [&](int64_t step, int64_t, double) {
    std::vector<std::vector<float>> after;
    for (const auto& [name, tensor] : network.named_parameters()) {
      after.push_back(to_vector<float>(tensor));
      if (step == 1) continue;  // whitening filters are made of the images
      const bool fixed = name == "whiten.weight" || name.ends_with("norm1.weight") ||
                         name.ends_with("norm2.weight");
      INFO(name);
      CHECK((after.back() == before[after.size() - 1]) == fixed);
    }
    before = after;
    return step < 2;
  };
  REQUIRE_FALSE(models::speedrun(network, noise, {}, {.epochs = 3}, after_step));
}

TEST_CASE("models: a speedrun over digits takes half of one epoch, or all of several", "[quick]") {
  const ImageDataset digits{"noise",
                            to(rand({640, 1, 16, 16}) * 255, DType::UInt8),
                            zeros({640}, {DType::Int64}),
                            {"any"}};
  for (const auto& [epochs, expected] : {std::pair{0, 2}, {1, 2}, {2, 10}}) {
    models::QuickNet network(1, 1, 16);
    int64_t taken = 0;
    REQUIRE(models::speedrun(network, digits, {}, {.epochs = epochs},
                             [&](int64_t step, int64_t steps, double) {
                               taken = step;
                               return steps == expected;
                             }));
    REQUIRE(taken == expected);
  }
}

TEST_CASE("models: the same seed gives the same network", "[quick]") {
  manual_seed(4);
  const auto a = make_model("resnet20");
  manual_seed(4);
  const auto b = make_model("resnet20");
  const auto first = a->state_dict();
  const auto second = b->state_dict();
  for (size_t i = 0; i < first.size(); ++i)
    REQUIRE(to_vector<float>(first[i].second) == to_vector<float>(second[i].second));
}

}  // namespace ringgrad::test::models_test
