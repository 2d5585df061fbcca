// The networks of networks.cpp; peers/networks_pytorch.py has the same. One file, because they
// share the pieces at its beginning.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/bench/networks.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/attention.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/recurrent.h"

using namespace ringgrad;

namespace {

using Network = std::shared_ptr<nn::Module>;
using Sequence = std::shared_ptr<nn::Sequential>;

enum class After : uint8_t { Nothing, Relu, Relu6 };

struct ConvOptions {
  int64_t stride = 1;
  int64_t groups = 1;
  After after = After::Relu;
};

// Convolution, batch norm, nonlinearity.
class ConvNorm : public nn::Module {
 public:
  ConvNorm(int64_t in, int64_t out, int64_t kernel, ConvOptions options)
      : conv_(in, out, kernel,
              {.stride = options.stride,
               .padding = kernel / 2,
               .groups = options.groups,
               .bias = false}),
        norm_(out),
        after_(options.after) {
    register_module("conv", conv_);
    register_module("norm", norm_);
  }
  Tensor forward(const Tensor& x) override {
    const Activation activation = after_ == After::Relu ? Activation::Relu : Activation::None;
    const Tensor y = norm_(conv_(x), {.activation = activation});
    return after_ == After::Relu6 ? relu6(y) : y;
  }

 private:
  nn::Conv2d conv_;
  nn::BatchNorm2d norm_;
  After after_;
};

ConvNorm conv(int64_t in, int64_t out, int64_t kernel, ConvOptions options = {}) {
  return ConvNorm(in, out, kernel, options);
}

// Applies modules to parts(x) and joins the results by `join`: the pieces of a network that is no
// sequence.
class Joined : public nn::Module {
 public:
  using Join = std::function<Tensor(const Tensor& x, nn::ModuleList& branches)>;
  Joined(std::vector<Network> branches, Join join) : join_(std::move(join)) {
    for (const Network& branch : branches) branches_.push_back(branch);
    register_module("branches", branches_);
  }
  Tensor forward(const Tensor& x) override { return join_(x, branches_); }

 private:
  nn::ModuleList branches_;
  Join join_;
};

template <class M>
void add(const Sequence& to, M&& module) {
  to->push_back(std::forward<M>(module));
}
Sequence sequence() { return std::make_shared<nn::Sequential>(); }

Tensor mean_of_pixels(const Tensor& x) { return flatten(adaptive_avg_pool2d(x, 1), 1); }
Tensor flat(const Tensor& x) { return flatten(x, 1); }

void add_classifier(const Sequence& net, int64_t channels) {
  add(net, nn::Functional(mean_of_pixels));
  add(net, nn::Linear(channels, 10));
}

Tensor plus_input(const Tensor& x, nn::ModuleList& branches) { return branches[0](x) + x; }

// Sandler et al. 2018, with the strides that suit 32 × 32.
Network mobilenet_v2() {
  struct Stage {
    int64_t expansion;
    int64_t channels;
    int64_t blocks;
    int64_t stride;
  };
  constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 1},  {6, 32, 3, 2}, {6, 64, 4, 2},
                               {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  const Sequence net = sequence();
  add(net, conv(3, 32, 3, {.after = After::Relu6}));
  int64_t in = 32;
  for (const Stage& stage : kStages)
    for (int64_t i = 0; i < stage.blocks; ++i) {
      const int64_t stride = i == 0 ? stage.stride : 1;
      const int64_t wide = in * stage.expansion;
      const Sequence block = sequence();
      if (wide != in) add(block, conv(in, wide, 1, {.after = After::Relu6}));
      add(block, conv(wide, wide, 3, {.stride = stride, .groups = wide, .after = After::Relu6}));
      add(block, conv(wide, stage.channels, 1, {.after = After::Nothing}));
      if (stride == 1 && in == stage.channels)
        add(net, Joined({block}, plus_input));
      else
        add(net, block);
      in = stage.channels;
    }
  add(net, conv(in, 1280, 1, {.after = After::Relu6}));
  add_classifier(net, 1280);
  return net;
}

// Ma et al. 2018, 1 ×.
Tensor shuffled(const Tensor& a, const Tensor& b) {
  const Tensor y = cat({a, b}, 1);
  const Shape& s = y.shape();
  return reshape(transpose(reshape(y, {s[0], 2, s[1] / 2, s[2], s[3]}), 1, 2), s);
}
Network shufflenet_v2() {
  const Sequence net = sequence();
  add(net, conv(3, 24, 3));
  int64_t in = 24;
  for (const auto& [channels, blocks] : {std::pair{116, 4}, {232, 8}, {464, 4}})
    for (int i = 0; i < blocks; ++i) {
      const int64_t half = channels / 2;
      const int64_t stride = i == 0 ? 2 : 1;
      const int64_t seen = i == 0 ? in : half;
      const ConvOptions depthwise{.stride = stride, .groups = half, .after = After::Nothing};
      const Sequence branch = sequence();
      add(branch, conv(seen, half, 1));
      add(branch, conv(half, half, 3, depthwise));
      add(branch, conv(half, half, 1));
      if (i > 0) {
        add(net, Joined({branch}, [](const Tensor& x, nn::ModuleList& branches) {
              const int64_t half = x.size(1) / 2;
              return shuffled(narrow(x, 1, 0, half), branches[0](narrow(x, 1, half, half)));
            }));
        continue;
      }
      const Sequence other = sequence();
      add(other, conv(in, in, 3, {.stride = 2, .groups = in, .after = After::Nothing}));
      add(other, conv(in, half, 1));
      add(net, Joined({other, branch}, [](const Tensor& x, nn::ModuleList& branches) {
            return shuffled(branches[0](x), branches[1](x));
          }));
      in = channels;
    }
  add(net, conv(in, 1024, 1));
  add_classifier(net, 1024);
  return net;
}

// Xie et al. 2017: three stages of two blocks of eight groups.
Network resnext20() {
  const Sequence net = sequence();
  add(net, conv(3, 64, 3));
  int64_t in = 64;
  for (const int64_t width : {128, 256, 512})
    for (int i = 0; i < 2; ++i) {
      const int64_t stride = i == 0 && width > 128 ? 2 : 1;
      const Sequence block = sequence();
      add(block, conv(in, width, 1));
      add(block, conv(width, width, 3, {.stride = stride, .groups = 8}));
      add(block, conv(width, 2 * width, 1, {.after = After::Nothing}));
      const Sequence shortcut = sequence();
      if (in != 2 * width)
        add(shortcut, conv(in, 2 * width, 1, {.stride = stride, .after = After::Nothing}));
      add(net, Joined({block, shortcut}, [](const Tensor& x, nn::ModuleList& branches) {
            return relu(branches[0](x) + branches[1](x));
          }));
      in = 2 * width;
    }
  add_classifier(net, in);
  return net;
}

// Huang et al. 2017, with 12 channels more from each layer.
Network densenet40() {
  const Sequence net = sequence();
  const auto norm_conv = [](int64_t in, int64_t out, int64_t kernel) {
    const Sequence layer = sequence();
    add(layer, nn::BatchNorm2d(in));
    add(layer, nn::ReLU());
    add(layer, nn::Conv2d(in, out, kernel, {.padding = kernel / 2, .bias = false}));
    return layer;
  };
  add(net, nn::Conv2d(3, 16, 3, {.padding = 1, .bias = false}));
  int64_t in = 16;
  for (int block = 0; block < 3; ++block) {
    if (block > 0) {
      add(net, norm_conv(in, in, 1));
      add(net, nn::AvgPool2d({.kernel = 2}));
    }
    for (int i = 0; i < 12; ++i, in += 12)
      add(net, Joined({norm_conv(in, 12, 3)}, [](const Tensor& x, nn::ModuleList& branches) {
            return cat({x, branches[0](x)}, 1);
          }));
  }
  add(net, nn::BatchNorm2d(in));
  add(net, nn::ReLU());
  add_classifier(net, in);
  return net;
}

// Hu et al. 2018: ResNet-20, whose blocks' channels are weighted by what all of them are.
Network se_resnet20() {
  const Sequence net = sequence();
  add(net, conv(3, 16, 3));
  int64_t in = 16;
  for (const int64_t channels : {16, 32, 64})
    for (int i = 0; i < 3; ++i) {
      const int64_t stride = i == 0 && channels > 16 ? 2 : 1;
      const Sequence block = sequence();
      add(block, conv(in, channels, 3, {.stride = stride}));
      add(block, conv(channels, channels, 3, {.after = After::Nothing}));
      const Sequence gate = sequence();
      add(gate, nn::AdaptiveAvgPool2d(1));
      add(gate, nn::Conv2d(channels, channels / 4, 1));
      add(gate, nn::ReLU());
      add(gate, nn::Conv2d(channels / 4, channels, 1));
      add(gate, nn::Sigmoid());
      const Sequence shortcut = sequence();
      if (in != channels)
        add(shortcut, conv(in, channels, 1, {.stride = stride, .after = After::Nothing}));
      add(net, Joined({block, gate, shortcut}, [](const Tensor& x, nn::ModuleList& branches) {
            const Tensor y = branches[0](x);
            return relu(y * branches[1](y) + branches[2](x));
          }));
      in = channels;
    }
  add_classifier(net, in);
  return net;
}

// Dosovitskiy et al. 2021, with patches of 4 × 4: 64 tokens and one for the class, of 192 numbers.
class VisionTransformer : public nn::Module {
 public:
  VisionTransformer() : patches_(3, 192, 4, {.stride = 4}), norm_({192}), head_(192, 10) {
    register_module("patches", patches_);
    class_token_ = register_parameter("class_token", zeros({1, 1, 192}));
    positions_ = register_parameter("positions", randn({1, 65, 192}) * 0.02);
    for (int i = 0; i < 12; ++i)
      layers_.push_back(nn::TransformerEncoderLayer(192, 3,
                                                    {.dim_feedforward = 768,
                                                     .dropout = 0,
                                                     .activation = nn::TransformerActivation::Gelu,
                                                     .batch_first = true,
                                                     .norm_first = true}));
    register_module("layers", layers_);
    register_module("norm", norm_);
    register_module("head", head_);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor patches = transpose(flatten(patches_(x), 2), 1, 2);
    const Tensor token = expand(class_token_, {x.size(0), 1, 192});
    const Tensor tokens = cat({ringgrad::to(token, patches.dtype()), patches}, 1);
    const Tensor y = layers_(tokens + ringgrad::to(positions_, patches.dtype()));
    return head_(select(norm_(y), 1, 0));
  }

 private:
  nn::Conv2d patches_;
  nn::Parameter class_token_;
  nn::Parameter positions_;
  nn::Sequential layers_;
  nn::LayerNorm norm_;
  nn::Linear head_;
};

// Rows of an image as a sequence, through two layers of 128 units.
class RowsLSTM : public nn::Module {
 public:
  RowsLSTM() : lstm_(28, 128, {.num_layers = 2, .batch_first = true}), head_(128, 10) {
    register_module("lstm", lstm_);
    register_module("head", head_);
  }
  Tensor forward(const Tensor& x) override {
    return head_(select(std::get<0>(lstm_(x)), 1, x.size(1) - 1));
  }

 private:
  nn::LSTM lstm_;
  nn::Linear head_;
};

// LeCun et al. 1998, with ReLU and maxima.
Network lenet5() {
  const Sequence net = sequence();
  add(net, nn::Conv2d(1, 6, 5, {.padding = 2}));
  add(net, nn::ReLU());
  add(net, nn::MaxPool2d(2));
  add(net, nn::Conv2d(6, 16, 5));
  add(net, nn::ReLU());
  add(net, nn::MaxPool2d(2));
  add(net, nn::Functional(flat));
  add(net, nn::Linear(400, 120));
  add(net, nn::ReLU());
  add(net, nn::Linear(120, 84));
  add(net, nn::ReLU());
  add(net, nn::Linear(84, 10));
  return net;
}

// Krizhevsky 2014, as torchvision has it.
Network alexnet() {
  const Sequence net = sequence();
  const auto convolution = [&](int64_t in, int64_t out, int64_t kernel,
                               nn::Conv2dOptions options = {.padding = 1}) {
    add(net, nn::Conv2d(in, out, kernel, options));
    add(net, nn::ReLU());
  };
  const auto pool = [&] { add(net, nn::MaxPool2d({.kernel = 3, .stride = 2})); };
  convolution(3, 64, 11, {.stride = 4, .padding = 2});
  pool();
  convolution(64, 192, 5, {.padding = 2});
  pool();
  convolution(192, 384, 3);
  convolution(384, 256, 3);
  convolution(256, 256, 3);
  pool();
  add(net, nn::Functional(flat));
  for (const int64_t in : {256 * 6 * 6, 4096}) {
    add(net, nn::Dropout(0.5));
    add(net, nn::Linear(in, 4096));
    add(net, nn::ReLU());
  }
  add(net, nn::Linear(4096, 10));
  return net;
}

// Simonyan & Zisserman 2015, with batch norm and one linear layer, as suits 32 × 32.
Network vgg11() {
  const Sequence net = sequence();
  int64_t in = 3;
  for (const int64_t channels : {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0}) {
    if (channels == 0) {
      add(net, nn::MaxPool2d(2));
      continue;
    }
    add(net, conv(in, channels, 3));
    in = channels;
  }
  add_classifier(net, in);
  return net;
}

// Zagoruyko & Komodakis 2016: three stages of two blocks, four times as wide as ResNet-20's.
Network wrn16_4() {
  const auto normed = [](int64_t channels) {
    const Sequence layer = sequence();
    add(layer, nn::BatchNorm2d(channels));
    add(layer, nn::ReLU());
    return layer;
  };
  const Sequence net = sequence();
  add(net, nn::Conv2d(3, 16, 3, {.padding = 1, .bias = false}));
  int64_t in = 16;
  for (const int64_t channels : {64, 128, 256})
    for (int i = 0; i < 2; ++i) {
      const int64_t stride = i == 0 && channels > 64 ? 2 : 1;
      const Sequence block = sequence();
      add(block, nn::Conv2d(in, channels, 3, {.stride = stride, .padding = 1, .bias = false}));
      add(block, normed(channels));
      add(block, nn::Conv2d(channels, channels, 3, {.padding = 1, .bias = false}));
      const Sequence shortcut = sequence();
      if (in != channels)
        add(shortcut, nn::Conv2d(in, channels, 1, {.stride = stride, .bias = false}));
      const bool projects = in != channels;
      add(net, Joined({normed(in), block, shortcut},
                      [projects](const Tensor& x, nn::ModuleList& branches) {
                        const Tensor y = branches[0](x);
                        return branches[1](y) + (projects ? branches[2](y) : x);
                      }));
      in = channels;
    }
  add(net, normed(in));
  add_classifier(net, in);
  return net;
}

// Iandola et al. 2016, version 1.1.
Network squeezenet() {
  const Sequence net = sequence();
  const auto convolution = [](int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
    const Sequence layer = sequence();
    add(layer, nn::Conv2d(in, out, kernel, {.stride = stride, .padding = kernel / 2}));
    add(layer, nn::ReLU());
    return layer;
  };
  add(net, convolution(3, 64, 3, 2));
  int64_t in = 64;
  for (const int64_t squeezed : {0, 16, 16, 0, 32, 32, 0, 48, 48, 64, 64}) {
    if (squeezed == 0) {
      add(net, nn::MaxPool2d({.kernel = 3, .stride = 2, .ceil_mode = true}));
      continue;
    }
    add(net, convolution(in, squeezed, 1));
    add(net,
        Joined({convolution(squeezed, 4 * squeezed, 1), convolution(squeezed, 4 * squeezed, 3)},
               [](const Tensor& x, nn::ModuleList& branches) {
                 return cat({branches[0](x), branches[1](x)}, 1);
               }));
    in = 8 * squeezed;
  }
  add(net, nn::Dropout(0.5));
  add(net, convolution(in, 10, 1));
  add(net, nn::Functional(mean_of_pixels));
  return net;
}

// Trockman & Kolter 2022: 256 channels, eight blocks, patches of 2 × 2, filters of 5 × 5.
Network convmixer() {
  const auto mixed = [](int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                        int64_t groups) {
    const Sequence layer = sequence();
    add(layer,
        nn::Conv2d(in, 256, kernel, {.stride = stride, .padding = padding, .groups = groups}));
    add(layer, nn::GELU());
    add(layer, nn::BatchNorm2d(256));
    return layer;
  };
  const Sequence net = sequence();
  add(net, mixed(3, 2, 2, 0, 1));
  for (int i = 0; i < 8; ++i) {
    add(net, Joined({mixed(256, 5, 1, 2, 256)}, plus_input));
    add(net, mixed(256, 1, 1, 0, 1));
  }
  add_classifier(net, 256);
  return net;
}

Network mlp() {
  const Sequence net = sequence();
  add(net, nn::Functional(flat));
  for (const int64_t in : {784, 512}) {
    add(net, nn::Linear(in, 512));
    add(net, nn::ReLU());
  }
  add(net, nn::Linear(512, 10));
  return net;
}

// Tolstikhin et al. 2021: 64 patches of 4 × 4, 192 numbers each, eight blocks.
Network mlp_mixer() {
  const auto mlp = [](int64_t size, int64_t hidden) {
    const Sequence layers = sequence();
    add(layers, nn::Linear(size, hidden));
    add(layers, nn::GELU());
    add(layers, nn::Linear(hidden, size));
    return layers;
  };
  const auto norm = [] { return std::make_shared<nn::LayerNorm>(Shape{192}); };
  const Sequence net = sequence();
  add(net, nn::Conv2d(3, 192, 4, {.stride = 4}));
  add(net, nn::Functional([](const Tensor& x) { return transpose(flatten(x, 2), 1, 2); }));
  for (int i = 0; i < 8; ++i) {
    add(net, Joined({norm(), mlp(64, 96)}, [](const Tensor& x, nn::ModuleList& branches) {
          return x + transpose(branches[1](transpose(branches[0](x), 1, 2)), 1, 2);
        }));
    add(net, Joined({norm(), mlp(192, 768)}, [](const Tensor& x, nn::ModuleList& branches) {
          return x + branches[1](branches[0](x));
        }));
  }
  add(net, nn::LayerNorm({192}));
  add(net, nn::Functional([](const Tensor& x) { return mean(x, 1); }));
  add(net, nn::Linear(192, 10));
  return net;
}

// Ronneberger et al. 2015, with batch norm, padding, and 32 to 256 channels: ten classes of pixels.
class UNet : public nn::Module {
 public:
  UNet() : head_(32, 10, 1) {
    int64_t in = 3;
    for (const int64_t channels : {32, 64, 128, 256}) {
      down_.push_back(twice(in, channels));
      in = channels;
    }
    for (const int64_t channels : {128, 64, 32}) {
      widen_.push_back(nn::ConvTranspose2d(2 * channels, channels, 2, {.stride = 2}));
      up_.push_back(twice(2 * channels, channels));
    }
    register_module("down", down_);
    register_module("widen", widen_);
    register_module("up", up_);
    register_module("head", head_);
  }
  Tensor forward(const Tensor& x) override {
    std::vector<Tensor> seen = {down_[0](x)};
    for (int64_t i = 1; i < 4; ++i) seen.push_back(down_[i](max_pool2d(seen.back(), 2)));
    Tensor y = seen[3];
    for (int64_t i = 0; i < 3; ++i) y = up_[i](cat({seen[2 - i], widen_[i](y)}, 1));
    return head_(y);
  }

 private:
  static Sequence twice(int64_t in, int64_t out) {
    const Sequence layers = sequence();
    add(layers, conv(in, out, 3));
    add(layers, conv(out, out, 3));
    return layers;
  }
  nn::ModuleList down_;
  nn::ModuleList widen_;
  nn::ModuleList up_;
  nn::Conv2d head_;
};

Network resnet(const std::string& name, int64_t size) {
  return models::make_model(name, {.image_size = size});
}

}  // namespace

const std::map<std::string, Example> kNetworks = {
    {"MobileNetV2", {mobilenet_v2}},
    {"ShuffleNetV2", {shufflenet_v2}},
    {"ResNeXt-20", {resnext20}},
    {"DenseNet-40", {densenet40}},
    {"SE-ResNet-20", {se_resnet20}},
    {"ViT-tiny", {[] { return std::make_shared<VisionTransformer>(); }}},
    {"LSTM", {[] { return std::make_shared<RowsLSTM>(); }, {64, 28, 28}}},
    {"LeNet-5", {lenet5, {64, 1, 28, 28}}},
    {"AlexNet", {alexnet, {16, 3, 224, 224}}},
    {"VGG-11", {vgg11}},
    {"WRN-16-4", {wrn16_4}},
    {"SqueezeNet", {squeezenet, {64, 3, 64, 64}}},
    {"ConvMixer-256/8", {convmixer}},
    {"MLP", {mlp, {64, 1, 28, 28}}},
    {"MLP-Mixer", {mlp_mixer}},
    {"U-Net", {[] { return std::make_shared<UNet>(); }, {16, 3, 64, 64}}},
    {"ResNet-18", {[] { return resnet("resnet18", 224); }, {16, 3, 224, 224}}},
    {"ResNet-50", {[] { return resnet("resnet50", 64); }, {16, 3, 64, 64}}},
};
