// What PyTorch 2 prints for the same modules, and what hooks, apply() and children() see of them.
#include <sstream>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/tests/catch.h"

using namespace ringgrad;

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

}  // namespace

TEST_CASE("layers are printed as PyTorch prints them", "[quick]") {
  CHECK(printed(nn::Linear(784, 128)) == "Linear(in_features=784, out_features=128, bias=True)");
  CHECK(printed(nn::Conv2d(1, 10, 5)) == "Conv2d(1, 10, kernel_size=(5, 5), stride=(1, 1))");
  CHECK(printed(nn::Conv2d(2, 4, {3, 2}, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2, .bias = false})) ==
        "Conv2d(2, 4, kernel_size=(3, 2), stride=(2, 2), padding=(1, 1), dilation=(2, 2), groups=2, bias=False)");
  CHECK(printed(nn::ConvTranspose2d(2, 4, 3, {.stride = 2, .output_padding = 1})) ==
        "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1))");
  CHECK(printed(nn::BatchNorm2d(4)) ==
        "BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)");
  CHECK(printed(nn::BatchNorm1d(4, {.eps = 0.001, .affine = false})) ==
        "BatchNorm1d(4, eps=0.001, momentum=0.1, affine=False, track_running_stats=True)");
  CHECK(printed(nn::LayerNorm({4})) == "LayerNorm((4,), eps=1e-05, elementwise_affine=True)");
  CHECK(printed(nn::MaxPool2d({.kernel = 3, .stride = 2, .padding = 1})) ==
        "MaxPool2d(kernel_size=3, stride=2, padding=1, dilation=1, ceil_mode=False)");
  CHECK(printed(nn::MaxPool2d({3, 2})) ==
        "MaxPool2d(kernel_size=(3, 2), stride=(3, 2), padding=0, dilation=1, ceil_mode=False)");
  CHECK(printed(nn::AvgPool2d(2)) == "AvgPool2d(kernel_size=2, stride=2, padding=0)");
  CHECK(printed(nn::AdaptiveAvgPool2d({2, 4})) == "AdaptiveAvgPool2d(output_size=(2, 4))");
  CHECK(printed(nn::LeakyReLU(1)) == "LeakyReLU(negative_slope=1.0)");
  CHECK(printed(nn::Dropout()) == "Dropout(p=0.5, inplace=False)");
  CHECK(printed(nn::Dropout2d(0.2)) == "Dropout2d(p=0.2, inplace=False)");
  CHECK(printed(nn::Flatten()) == "Flatten(start_dim=1, end_dim=-1)");
  CHECK(printed(nn::Softmax(1)) == "Softmax(dim=1)");
  CHECK(printed(nn::Embedding(10, 3)) == "Embedding(10, 3)");
  CHECK(printed(nn::ReLU()) == "ReLU()");
}

TEST_CASE("a module is printed with its children below it", "[quick]") {
  CHECK(printed(nn::Sequential()) == "Sequential()");
  CHECK(printed(nn::Sequential(Wrapped<nn::Linear>(), nn::Sequential(nn::ReLU()))) ==
        "Sequential(\n"
        "  (0): Wrapped(\n"
        "    (inner): Linear(in_features=1, out_features=2, bias=True)\n"
        "  )\n"
        "  (1): Sequential(\n"
        "    (0): ReLU()\n"
        "  )\n"
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
  HookHandle watch = net[0].register_forward_hook([&](nn::Module&, const Tensor& x, const Tensor& y) {
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

TEST_CASE("a hook's handle may outlive its module", "[quick]") {
  HookHandle handle;
  {
    nn::ReLU relu;
    handle = relu.register_forward_hook([](nn::Module&, const Tensor&, const Tensor&) { return Tensor(); });
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
