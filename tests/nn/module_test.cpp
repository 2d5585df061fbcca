// Modules: names, state, moving and converting.
#include "ringgrad/nn/module.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::module_test {

namespace {

struct Scale : nn::Module {
  nn::Parameter factor = register_parameter("factor", full({2}, 2));
  nn::Buffer count = register_buffer("count", zeros({}, {.dtype = DType::Int64}));
  Tensor forward(const Tensor& x) override { return mul(x, factor); }
};

struct Net : nn::Module {
  Scale first;
  Scale second;
  nn::Parameter bias = register_parameter("bias", full({2}, 1));
  Net() {
    register_module("first", first);
    register_module("second", second);
  }
  Tensor forward(const Tensor& x) override { return add(second(first(x)), bias); }
};

std::vector<std::string> names_of(const nn::NamedTensors& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("module: names, own ones first, children in order", "[quick]") {
  Net net;
  REQUIRE(names_of(net.named_parameters()) == Names{"bias", "first.factor", "second.factor"});
  REQUIRE(names_of(net.named_buffers()) == Names{"first.count", "second.count"});
  REQUIRE(net.num_parameters() == 6);
  Names modules;
  for (const auto& [name, module] : net.named_modules()) modules.push_back(name);
  REQUIRE(modules == Names{"", "first", "second"});
  REQUIRE(net.bias.requires_grad());
  REQUIRE(!net.first.count.requires_grad());
  REQUIRE(to_vector<float>(net(ones({2}))) == std::vector<float>{5, 5});
}

TEST_CASE("module: a shared parameter is listed once", "[quick]") {
  struct Tied : nn::Module {
    Scale a;
    nn::Parameter again = register_parameter("again", a.factor);
    Tied() { register_module("a", a); }
  } tied;
  REQUIRE(names_of(tied.named_parameters()) == Names{"again"});
}

TEST_CASE("module: bad names and missing forward are errors", "[quick]") {
  struct Open : nn::Module {
    using nn::Module::register_buffer;
    using nn::Module::register_module;
    using nn::Module::register_parameter;
  } module;
  Scale child;
  module.register_parameter("w", zeros({1}));
  REQUIRE(contains(error_of<Error>([&] { module.register_buffer("w", zeros({1})); }),
                   "already registered"));
  REQUIRE(
      contains(error_of<Error>([&] { module.register_module("w", child); }), "already registered"));
  REQUIRE(contains(error_of<Error>([&] { module.register_parameter("a.b", zeros({1})); }),
                   "without dots"));
  REQUIRE(contains(error_of<Error>([&] { module.register_parameter("", zeros({1})); }),
                   "without dots"));
  module.register_parameter("none", Tensor());  // holds the name
  REQUIRE(contains(error_of<Error>([&] { module.register_buffer("none", Tensor()); }),
                   "already registered"));
  REQUIRE(module.state_dict().size() == 1);
  REQUIRE_THROWS_AS(module(zeros({1})), NotImplementedError);
  REQUIRE_THROWS_AS(nn::BatchNorm2d(1)(Tensor()), Error);
}

TEST_CASE("module: train and eval reach all descendants", "[quick]") {
  Net net;
  net.eval();
  REQUIRE(!net.is_training());
  REQUIRE(!net.second.is_training());
  net.train();
  REQUIRE(net.second.is_training());
}

TEST_CASE("module: state_dict shares memory, load_state_dict copies", "[quick]") {
  Net net;
  Net other;
  fill_(other.first.factor, 9);
  fill_(other.second.count, 4);
  const nn::NamedTensors state = other.state_dict();
  REQUIRE(names_of(state) ==
          Names{"bias", "first.factor", "second.factor", "first.count", "second.count"});
  const nn::LoadReport report = net.load_state_dict(state);
  REQUIRE((report.missing.empty() && report.unexpected.empty() && !report.stripped_module_prefix));
  REQUIRE(to_vector<float>(net.first.factor) == std::vector<float>{9, 9});
  REQUIRE(net.second.count.item<int64_t>() == 4);
  REQUIRE(!net.first.factor.shares_memory_with(other.first.factor));
  REQUIRE(state[1].second.shares_memory_with(other.first.factor));
  REQUIRE(!state[1].second.requires_grad());
}

TEST_CASE("module: load_state_dict says what does not fit, and changes nothing then", "[quick]") {
  Net net;
  nn::NamedTensors state = Net().state_dict();
  for (auto& [name, tensor] : state) fill_(tensor, 8);

  nn::NamedTensors renamed = state;
  renamed[1].first = "first.factor2";
  const std::string names = error_of<DataError>([&] { net.load_state_dict(renamed); });
  REQUIRE(contains(names, "missing in the state: first.factor;"));
  REQUIRE(contains(names, "unexpected in the state: first.factor2"));

  nn::NamedTensors reshaped = state;
  reshaped[1].second = zeros({3});
  reshaped[4].second = zeros({1});
  const std::string shapes = error_of<ShapeError>([&] { net.load_state_dict(reshaped, false); });
  REQUIRE(contains(shapes, "first.factor is [3] in the state, expected [2]"));
  REQUIRE(contains(shapes, "second.count is [1] in the state, expected []"));

  nn::NamedTensors whole = state;
  whole[0].second = zeros({2}, {.dtype = DType::Int32});
  REQUIRE(contains(error_of<DTypeError>([&] { net.load_state_dict(whole); }),
                   "bias is int32 in the state, expected float32"));

  nn::NamedTensors doubled = state;
  doubled.push_back(state[0]);
  REQUIRE(contains(error_of<DataError>([&] { net.load_state_dict(doubled); }), "'bias' twice"));
  nn::NamedTensors hollow = state;
  hollow[0].second = Tensor();
  REQUIRE(contains(error_of<DataError>([&] { net.load_state_dict(hollow); }),
                   "'bias' is an undefined tensor"));
  REQUIRE(to_vector<float>(net.bias) == std::vector<float>{1, 1});
  REQUIRE(to_vector<float>(net.first.factor) == std::vector<float>{2, 2});

  const nn::LoadReport report = net.load_state_dict(renamed, false);
  REQUIRE(report.missing == Names{"first.factor"});
  REQUIRE(report.unexpected == Names{"first.factor2"});
  REQUIRE(to_vector<float>(net.bias) == std::vector<float>{8, 8});
}

TEST_CASE("module: a state with the prefix module. throughout loads, with a note", "[quick]") {
  Net net;
  nn::NamedTensors state = Net().state_dict();
  for (auto& [name, tensor] : state) name = "module." + name;
  REQUIRE(net.load_state_dict(state).stripped_module_prefix);
  state[0].first = "bias";
  REQUIRE_THROWS_AS(net.load_state_dict(state), DataError);

  struct Wrapper : nn::Module {
    Net net;
    Wrapper() { register_module("module", net); }
  } wrapper, other;
  fill_(other.net.bias, 5);
  REQUIRE(!wrapper.load_state_dict(other.state_dict()).stripped_module_prefix);
  REQUIRE(to_vector<float>(wrapper.net.bias) == std::vector<float>{5, 5});
}

TEST_CASE("module: to(dtype) converts values and gradients, and handles follow", "[quick]") {
  Net net;
  const Tensor handle = net.first.factor;
  handle.set_grad(full({2}, 3));
  net.to(DType::Float64);
  REQUIRE(handle.dtype() == DType::Float64);
  REQUIRE(to_vector<double>(handle.grad()) == std::vector<double>{3, 3});
  REQUIRE(handle.requires_grad());
  REQUIRE(net.first.count.dtype() == DType::Int64);
  REQUIRE_THROWS_AS(net.to(DType::Int32), DTypeError);
  REQUIRE_THROWS_AS(net.to(Device("cpu:99")), DeviceError);
  net.zero_grad();
  REQUIRE(to_vector<double>(handle.grad()) == std::vector<double>{0, 0});
}

TEST_CASE("module: a living graph does not hold its parameters to the dtype they had", "[quick]") {
  Net net;
  const Tensor before = sum(net(ones({2})));
  net.to(DType::Float64);
  sum(net(ones({2}, {.dtype = DType::Float64}))).backward();
  REQUIRE(to_vector<double>(net.bias.grad()) == std::vector<double>{1, 1});
  REQUIRE(net.bias.grad().dtype() == DType::Float64);
}

TEST_CASE("module: batch norm stays in float32 when the network becomes 16-bit", "[quick]") {
  nn::Sequential net{std::make_shared<Scale>(), std::make_shared<nn::BatchNorm2d>(2)};
  net.to(DType::BFloat16);
  for (const auto& [name, tensor] : net.state_dict()) {
    const DType expected = name == "0.factor"  ? DType::BFloat16
                           : tensor.dim() == 0 ? DType::Int64
                                               : DType::Float32;
    REQUIRE(tensor.dtype() == expected);
  }
  net.to(DType::Float64);
  REQUIRE(dynamic_cast<nn::BatchNorm2d&>(net[1]).running_var.dtype() == DType::Float64);
}

}  // namespace ringgrad::test::module_test
