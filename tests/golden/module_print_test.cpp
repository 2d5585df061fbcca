// Compares the printed text of modules with PyTorch 2's, and the order in which hooks, apply() and
// children() see them.
#include <fstream>
#include <sstream>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/nn/attention.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/losses.h"
#include "ringgrad/nn/recurrent.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::module_print_test {

namespace {

std::string printed(const nn::Module& module) {
  std::ostringstream out;
  out << module;
  return out.str();
}

template <class T>
struct Wrapped : nn::Module {
  T inner{1, 2};
  Wrapped() { register_module("inner", inner); }
  Tensor forward(const Tensor& x) override { return inner(x); }
};

// The twins of tests/golden/make_modules.py, in the same order.
std::vector<std::shared_ptr<nn::Module>> modules_as_in_golden_file() {
  std::vector<std::shared_ptr<nn::Module>> all;
  const auto add = [&]<class M>(M&& module) { all.push_back(nn::as_shared(std::move(module))); };
  add(nn::Linear(784, 128));
  add(nn::Linear(3, 4, {.bias = false}));
  add(nn::Conv2d(1, 10, 5));
  add(nn::Conv2d(2, 4, {3, 2},
                 {.stride = 2, .padding = 1, .dilation = 2, .groups = 2, .bias = false}));
  add(nn::Conv1d(2, 4, 3));
  add(nn::Conv1d(2, 4, 3, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2, .bias = false}));
  add(nn::ConvTranspose2d(2, 4, 3, {.stride = 2, .output_padding = 1}));
  add(nn::BatchNorm2d(4));
  add(nn::BatchNorm1d(4, {.eps = 1e-3, .affine = false}));
  add(nn::BatchNorm2d(4, {.bias = false, .track_running_stats = false}));
  add(nn::LayerNorm({4}));
  add(nn::LayerNorm({3, 4}, {.eps = 1e-6, .bias = false}));
  add(nn::GroupNorm(2, 4));
  add(nn::GroupNorm(1, 4, {.eps = 1e-3, .affine = false}));
  add(nn::MaxPool2d({.kernel = 3, .stride = 2, .padding = 1}));
  add(nn::MaxPool2d({3, 2}));
  add(nn::AvgPool2d(2));
  add(nn::AdaptiveAvgPool2d({2, 4}));
  add(nn::AdaptiveAvgPool2d(1));
  add(nn::Upsample({.scale_factor = 2}));
  add(nn::Upsample({.scale_factor = 1.5, .mode = UpsampleMode::Bilinear}));
  add(nn::Upsample({.size = {4, 6}, .mode = UpsampleMode::Bilinear, .align_corners = true}));
  add(nn::ReLU());
  add(nn::LeakyReLU(1));
  add(nn::ELU());
  add(nn::ELU(0.5));
  add(nn::PReLU());
  add(nn::PReLU(3));
  add(nn::GELU());
  add(nn::SiLU());
  add(nn::Sigmoid());
  add(nn::Tanh());
  add(nn::Softmax(1));
  add(nn::LogSoftmax(-1));
  add(nn::Dropout());
  add(nn::Dropout2d(0.25));
  add(nn::Flatten());
  add(nn::Identity());
  add(nn::Embedding(10, 3));
  add(nn::Embedding(10, 3, {.padding_idx = -1}));
  add(nn::Sequential());
  add(nn::Sequential(nn::Linear(1, 2), nn::Sequential(nn::ReLU())));
  add(nn::Sequential(nn::ReLU(), nn::ReLU()));
  add(nn::ModuleList(nn::ReLU(), nn::Linear(1, 2), nn::Linear(1, 2), nn::Linear(2, 2)));
  add(nn::Mish());
  add(nn::Hardswish());
  add(nn::Hardsigmoid());
  add(nn::ReLU6());
  add(nn::SELU());
  add(nn::LogSigmoid());
  add(nn::Softsign());
  add(nn::Tanhshrink());
  add(nn::Softmin(1));
  add(nn::GLU());
  add(nn::CELU(0.5));
  add(nn::Hardshrink());
  add(nn::Softshrink(0.25));
  add(nn::Softplus(2));
  add(nn::Hardtanh());
  add(nn::GELU({.approximate = nn::GELUApproximate::Tanh}));
  add(nn::InstanceNorm1d(3));
  add(nn::InstanceNorm2d(3, {.eps = 1e-3, .affine = true}));
  add(nn::ReflectionPad1d(2));
  add(nn::ReflectionPad2d({1, 2, 0, 3}));
  add(nn::ReplicationPad1d({1, 2}));
  add(nn::ReplicationPad2d(1));
  add(nn::CircularPad1d(1));
  add(nn::CircularPad2d(1));
  add(nn::ZeroPad1d({1, -1}));
  add(nn::ZeroPad2d(1));
  add(nn::ConstantPad1d(1, 0.5));
  add(nn::ConstantPad2d({1, 2, 3, 4}, 2.5));
  add(nn::PixelShuffle(2));
  add(nn::PixelUnshuffle(3));
  add(nn::Unfold({.kernel = 2}));
  add(nn::Unfold({.kernel = {2, 3}, .stride = 2, .padding = 1, .dilation = {1, 2}}));
  add(nn::MaxPool2d({.kernel = 2, .ceil_mode = true}));
  add(nn::Dropout1d());
  add(nn::Dropout3d(0.25));
  add(nn::AlphaDropout(0.25));
  add(nn::Unflatten(1, {2, 3}));
  add(nn::MSELoss());
  add(nn::L1Loss());
  add(nn::SoftMarginLoss());
  add(nn::HuberLoss());
  add(nn::SmoothL1Loss());
  add(nn::HingeEmbeddingLoss());
  add(nn::CrossEntropyLoss());
  add(nn::NLLLoss({.weight = ones({3})}));
  add(nn::BCELoss());
  add(nn::BCEWithLogitsLoss({.pos_weight = ones({2})}));
  add(nn::KLDivLoss());
  add(nn::PoissonNLLLoss());
  add(nn::MarginRankingLoss());
  add(nn::CosineEmbeddingLoss());
  add(nn::TripletMarginLoss());
  add(nn::GaussianNLLLoss());
  add(nn::LSTM(3, 4, {.num_layers = 2, .batch_first = true, .dropout = 0.5}));
  add(nn::GRU(3, 4, {.bidirectional = true}));
  add(nn::RNN(3, 4, {.bias = false}));
  add(nn::MultiheadAttention(4, 2));
  add(nn::TransformerEncoder(2, 4, 2, {.dim_feedforward = 8}));
  nn::ModuleDict dict;
  dict.insert("a", nn::Conv2d(1, 2, 3));
  dict.insert("b", nn::Sequential(nn::BatchNorm2d(2)));
  add(std::move(dict));
  return all;
}

}  // namespace

TEST_CASE("modules print, and name their state, as PyTorch's do", "[quick]") {
  std::string text;
  for (const auto& module : modules_as_in_golden_file()) {
    text += printed(*module) + "\n=";
    for (const auto& [name, value] : module->state_dict())
      text += str(' ', name, ' ', value.shape());
    text += "\n\n";
  }
  std::ifstream in(std::string(RINGGRAD_GOLDEN) + "/modules.txt");
  std::ostringstream golden;
  golden << in.rdbuf();
  CHECK(text == golden.str());
}

TEST_CASE("a module of one's own is printed with its children below it", "[quick]") {
  CHECK(printed(Wrapped<nn::Linear>()) ==
        "Wrapped(\n"
        "  (inner): Linear(in_features=1, out_features=2, bias=True)\n"
        ")");
}

TEST_CASE("apply visits children first, children() only those directly below", "[quick]") {
  nn::Sequential net{nn::ReLU(), nn::Sequential{nn::Tanh()}};
  std::string order;
  net.apply([&](nn::Module& module) { order += module.type_name() + " "; });
  CHECK(order == "Tanh Sequential ReLU Sequential ");
  CHECK(net.children() == std::vector<nn::Module*>{&net[0], &net[1]});
  CHECK(net.named_children()[1].first == "1");
}

TEST_CASE("forward hooks see what goes in and out, and may replace it", "[quick]") {
  nn::Sequential net(nn::ReLU(), nn::Functional([](const Tensor& x) { return x * 2; }));
  std::vector<float> seen;
  HookHandle watch =
      net[0].register_forward_hook([&](nn::Module&, const Tensor& x, const Tensor& y) {
        seen = {x.item<float>(), y.item<float>()};
        return Tensor();
      });
  HookHandle replace;
  replace = net.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor& y) {
    replace.remove();  // once
    return y + 1;
  });
  CHECK(net(full({}, -3)).item<float>() == 1);
  CHECK(seen == std::vector<float>{-3, 0});
  watch.remove();
  CHECK(net(full({}, 5)).item<float>() == 10);
  CHECK(seen == std::vector<float>{-3, 0});
}

TEST_CASE("forward hooks run in calls with more arguments, too", "[quick]") {
  const Tensor x = reshape(arange(0.0, 16.0), {2, 2, 2, 2});
  const auto doubled = [](nn::Module&, const Tensor&, const Tensor& y) { return y * 2; };
  const auto check = [&](nn::Module& module, const auto& call) {
    const Tensor plain = call();
    HookHandle hook = module.register_forward_hook(doubled);
    CHECK(equal(call(), plain * 2));
    hook.remove();
    CHECK(equal(call(), plain));
  };
  nn::BatchNorm2d bn(2);
  check(bn, [&] { return bn(x, {.activation = Activation::Relu}); });
  nn::Conv2d conv(2, 2, 1, {.bias = false});
  check(bn, [&] { return nn::conv_batch_norm(conv, bn, x, {.activation = Activation::Relu}); });
  nn::TransformerEncoderLayer layer(4, 2, {.dropout = 0});
  const Tensor words = reshape(arange(0.0, 8.0), {2, 1, 4});
  check(layer, [&] { return layer(words, zeros({2, 2})); });
  nn::TransformerEncoder encoder(2, 4, 2, {.dropout = 0});
  check(encoder, [&] { return encoder(words, zeros({2, 2})); });
  int calls = 0;
  encoder.layers[0].register_forward_hook([&](nn::Module&, const Tensor&, const Tensor&) {
    ++calls;
    return Tensor();
  });
  encoder(words);
  CHECK(calls == 1);
  nn::MSELoss mse;
  check(mse, [&] { return mse(x, x + 1); });
  nn::MarginRankingLoss ranking(1);
  check(ranking, [&] { return ranking(x, x, ones_like(x)); });
}

TEST_CASE("a hook's handle may outlive its module", "[quick]") {
  HookHandle handle;
  {
    nn::ReLU relu;
    handle = relu.register_forward_hook(
        [](nn::Module&, const Tensor&, const Tensor&) { return Tensor(); });
  }
  handle.remove();
}

TEST_CASE("BatchNorm1d, Softmax and Embedding compute what their operations do", "[quick]") {
  const Tensor x = tensor<float>({1, 2, 3, 6}, {2, 2});
  nn::BatchNorm1d bn(2);
  CHECK(std::abs(to_vector<float>(bn(x))[3] - 1) < 1e-4);
  CHECK_THROWS_AS(bn(ones({2, 2, 1, 1})), ShapeError);
  CHECK(bn(ones({2, 2, 3})).shape() == Shape{2, 2, 3});
  CHECK(to_vector<float>(nn::LogSoftmax(0)(x)) == to_vector<float>(log_softmax(x, 0)));
  nn::Embedding words(5, 2);
  words.weight = tensor<float>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 2});
  const Tensor y = words(tensor<int64_t>({4, 0, 1, 1}, {2, 2}));
  CHECK(y.shape() == Shape{2, 2, 2});
  CHECK(to_vector<float>(y.detach()) == std::vector<float>{8, 9, 0, 1, 2, 3, 2, 3});
  sum(y).backward();
  CHECK(to_vector<float>(words.weight.grad()) == std::vector<float>{1, 1, 2, 2, 0, 0, 0, 0, 1, 1});
}

}  // namespace ringgrad::test::module_print_test
