#include "ringgrad/tests/random/random_network.h"

#include <functional>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::test {
namespace {

constexpr int64_t kChannels = 2;
constexpr int64_t kSide = 4;
constexpr int64_t kClasses = 3;
constexpr int64_t kLarge = (int64_t{1} << 61) + 1;  // not a float64

Tensor activation(int64_t kind, const Tensor& x) {
  return kind == 0 ? relu(x) : kind == 1 ? gelu(x) : kind == 2 ? tanh(x) : silu(x);
}

// Applies layers in turn. Each is a function of modules that this module owns.
class Part : public nn::Module {
 public:
  Part(Choices& choices, const NetworkOptions& options) : choices_(choices), options_(options) {}

  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& step : steps_) y = step(y);
    return y;
  }

  template <class Layer>
  std::shared_ptr<Layer> add(std::shared_ptr<Layer> layer) {
    register_module("layer" + std::to_string(count_++), layer);
    layer->to(options_.dtype);
    return layer;
  }

  // Freezes some of the layers.
  void maybe_freeze(nn::Module& layer) {
    if (!choices_.chance(15)) return;
    for (const Tensor& parameter : layer.parameters()) parameter.set_requires_grad(false);
    text += " frozen";
  }

  void then(const std::string& name, std::function<Tensor(const Tensor&)> step) {
    steps_.push_back(std::move(step));
    text += " " + name;
  }

  void add_activation() {
    const int64_t kind = choices_.below(4);
    then("activation", [kind](const Tensor& x) { return activation(kind, x); });
  }

  void add_convolution() {
    const int64_t out = choices_.between(1, 2) * 2;
    const int64_t kernel = choices_.of<int64_t>({1, 3, 3});
    const int64_t groups = choices_.chance(25) ? 2 : 1;
    const auto conv = add(std::make_shared<nn::Conv2d>(
        channels, out, kernel,
        nn::Conv2dOptions{.padding = kernel / 2, .groups = groups, .bias = choices_.chance(60)}));
    channels = out;
    then("conv", [conv](const Tensor& x) { return (*conv)(x); });
    maybe_freeze(*conv);
  }

  void add_batch_norm() {
    const auto norm = add(std::make_shared<nn::BatchNorm2d>(
        channels, nn::BatchNorm2dOptions{.momentum = choices_.of<double>({0.1, 0.5}),
                                         .affine = choices_.chance(80)}));
    has_batch_norm = true;
    then("batch_norm", [norm](const Tensor& x) { return (*norm)(x); });
    if (choices_.chance(15)) norm->eval();
  }

  void add_group_norm() {
    const auto norm = add(std::make_shared<nn::GroupNorm>(channels / 2, channels));
    then("group_norm", [norm](const Tensor& x) { return (*norm)(x); });
  }

  void add_flatten() {
    const bool pool = choices_.chance(50);
    features = channels * (pool ? kSide * kSide / 4 : kSide * kSide);
    then("flatten",
         [pool](const Tensor& x) { return flatten(pool ? max_pool2d(x, {.kernel = 2}) : x, 1); });
  }

  std::shared_ptr<nn::Linear> linear(int64_t out) {
    const auto layer = add(std::make_shared<nn::Linear>(
        features, out, nn::LinearOptions{.bias = choices_.chance(70)}));
    features = out;
    return layer;
  }

  void add_linear(int64_t out) {
    const auto layer = linear(out);
    then("linear", [layer](const Tensor& x) { return (*layer)(x); });
    maybe_freeze(*layer);
  }

  void add_layer_norm() {
    const auto norm = add(std::make_shared<nn::LayerNorm>(Shape{features}));
    then("layer_norm", [norm](const Tensor& x) { return (*norm)(x); });
  }

  void add_twice() {
    const auto layer = linear(features);
    then("twice", [layer](const Tensor& x) { return (*layer)(tanh((*layer)(x))); });
  }

  void add_tied() {
    const auto first = linear(features);
    const auto second = linear(features);
    second->weight = first->weight;
    then("tied", [first, second](const Tensor& x) { return (*second)(tanh((*first)(x))); });
  }

  void add_unused() {
    add(std::make_shared<nn::Linear>(3, 2));
    text += " unused";
  }

  void add_branch() {
    const auto layer = add(std::make_shared<nn::Linear>(features, features));
    then("branch", [this, layer](const Tensor& x) { return branch ? x + (*layer)(x) : x; });
  }

  // Adds buffers that each forward in training writes: a count beyond float64's exact range, and a
  // running mean in float64.
  void add_counts() {
    const Tensor count = full({}, 0, {.dtype = DType::Int64});
    *count.data<int64_t>() = kLarge;
    const Tensor mean = zeros({1}, {.dtype = DType::Float64});
    register_buffer("count", count);
    register_buffer("mean", mean);
    then("counts", [this, count, mean](const Tensor& x) {
      if (!is_training()) return x;
      NoGradGuard guard;
      ++*count.data<int64_t>();
      mean.mul_(0.5);
      mean += ringgrad::to(ringgrad::mean(x.detach()), DType::Float64) * 0.5;
      return x;
    });
  }

  // Adds buffers that are never written.
  void add_constants() {
    const Tensor large = full({2}, 0, {.dtype = DType::Int64});
    large.data<int64_t>()[0] = INT64_MAX;
    large.data<int64_t>()[1] = -kLarge;
    register_buffer("large", large);
    register_buffer("mask", tensor(std::vector<uint8_t>{0, 255, 3}));
    register_buffer("thirds", full({5}, 1.0 / 3, {.dtype = DType::Float64}));
    register_buffer("halves", full({3}, 1.0 / 3, {.dtype = DType::Float16}));
    text += " constants";
  }

  int64_t channels = kChannels;
  int64_t features = 0;
  bool branch = true;
  bool has_batch_norm = false;
  std::string text;

 private:
  Choices& choices_;
  NetworkOptions options_;
  int count_ = 0;
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

}  // namespace

RandomNetwork::RandomNetwork(uint64_t seed, const NetworkOptions& options) {
  manual_seed(seed);
  Choices choices(seed, 1);
  const auto body = std::make_shared<Part>(choices, options);
  for (int64_t i = choices.between(1, 3); i > 0; --i) {
    body->add_convolution();
    if (options.batch_norm && choices.chance(50)) body->add_batch_norm();
    if (choices.chance(15)) body->add_group_norm();
    if (choices.chance(70)) body->add_activation();
  }
  if (options.counts && choices.chance(40)) body->add_counts();
  body->add_flatten();

  const auto head = std::make_shared<Part>(choices, options);
  head->features = body->features;
  head->add_linear(choices.between(2, 9));
  if (choices.chance(30)) head->add_layer_norm();
  head->add_activation();
  if (choices.chance(30)) head->add_twice();
  if (choices.chance(30)) head->add_tied();
  if (choices.chance(30)) head->add_branch();
  if (choices.chance(30)) head->add_unused();
  if (choices.chance(50)) head->add_constants();
  const auto last = head->linear(kClasses);  // never frozen
  head->then("linear", [last](const Tensor& x) { return (*last)(x); });

  body_ = register_module("body", body);
  head_ = register_module("head", head);
  has_batch_norm_ = body->has_batch_norm;
  text_ = body->text + " |" + head->text;
}

void RandomNetwork::use_branch(bool on) { dynamic_cast<Part&>(*head_).branch = on; }

double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::Float64: return 0x1p-52;
    case DType::Float32: return 0x1p-23;
    case DType::Float16: return 0x1p-10;
    default: return 0x1p-7;
  }
}

Batch3 random_batch(uint64_t seed, int64_t number, int64_t samples, DType dtype, bool unlabelled) {
  std::vector<double> values;
  std::vector<int64_t> labels;
  RandomSequence sequence(seed, Purpose::Digits, static_cast<uint64_t>(number));
  for (int64_t i = 0; i < samples; ++i) {
    // Whole eighths: the same in every dtype.
    for (int64_t k = 0; k < kChannels * kSide * kSide; ++k)
      values.push_back(static_cast<double>(sequence.between(-16, 16)) / 8);
    labels.push_back(unlabelled && sequence.below(3) == 0
                         ? -100
                         : static_cast<int64_t>(sequence.below(kClasses)));
  }
  const Tensor x = tensor(values, {samples, kChannels, kSide, kSide});
  return {to(x, dtype), tensor(labels)};
}

}  // namespace ringgrad::test
