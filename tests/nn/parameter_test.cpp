// A module's parameters are its members: what is assigned to one is what is trained, saved and
// computed with.
#include "ringgrad/nn/parameter.h"

#include <type_traits>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/load_weights.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::parameter_test {

namespace {

using Values = std::vector<float>;
Values values(const Tensor& x) { return to_vector<float>(x.detach()); }

struct Tied : nn::Module {
  nn::Linear a{2, 2, {.bias = false}};
  nn::Linear b{2, 2, {.bias = false}};
  Tied() {
    register_module("a", a);
    register_module("b", b);
    b.weight = a.weight;
  }
  Tensor forward(const Tensor& x) override { return b(a(x)); }
};

std::vector<std::string> names_of(const nn::NamedTensors& named) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("parameter: what is assigned is computed with, trained and saved", "[quick]") {
  nn::Linear l(2, 2, {.bias = false});
  l.weight = ones({2, 2});
  REQUIRE(l.weight.requires_grad());
  REQUIRE(l.parameters()[0].is_same(l.weight));
  REQUIRE(values(l.state_dict()[0].second) == Values{1, 1, 1, 1});

  optim::SGD optimizer(l.parameters(), {.lr = 1});
  optimizer.zero_grad();
  sum(l(ones({1, 2}))).backward();
  optimizer.step();
  REQUIRE(values(l.weight) == Values{0, 0, 0, 0});
  REQUIRE(values(l(ones({1, 2}))) == Values{0, 0});
}

TEST_CASE("parameter: tied by assignment, one tensor under both names", "[quick]") {
  Tied net;
  REQUIRE(names_of(net.named_parameters()) == Names{"a.weight"});
  REQUIRE(names_of(net.state_dict()) == Names{"a.weight", "b.weight"});  // as PyTorch's
  net.a.weight.detach();
  fill_(net.a.weight, 2);
  optim::SGD optimizer(net.parameters(), {.lr = 1});
  optimizer.zero_grad();
  // y = W W 1: each element is 4 from the first use and 4 from the second.
  sum(net(ones({1, 2}))).backward();
  optimizer.step();
  REQUIRE(values(net.a.weight) == Values{-6, -6, -6, -6});
  REQUIRE(values(net.b.weight) == Values{-6, -6, -6, -6});
  net.to(DType::Float64);
  REQUIRE(net.b.weight.is_same(net.a.weight));
}

TEST_CASE("parameter: tied weights load from a file with one of the names, and with both",
          "[quick]") {
  Tied net;
  Tied other;
  fill_(net.a.weight, 3);
  const TempFolder folder;
  const std::filesystem::path path = folder / "tied.safetensors";
  nn::save_safetensors(path, net.state_dict());
  other.load_state_dict(nn::load_weights(path).tensors);
  REQUIRE(values(other.b.weight) == Values{3, 3, 3, 3});
  for (const char* name : {"a.weight", "b.weight"}) {
    Tied third;
    third.load_state_dict({{name, full({2, 2}, 5)}});
    REQUIRE(values(third.a.weight) == Values{5, 5, 5, 5});
    REQUIRE(values(third.b.weight) == Values{5, 5, 5, 5});
  }
  REQUIRE_THROWS_AS(Tied().load_state_dict({}), DataError);
}

TEST_CASE("parameter: a bias that a layer was made without may come later", "[quick]") {
  nn::Linear l(2, 2, {.bias = false});
  REQUIRE(names_of(l.state_dict()) == Names{"weight"});
  l.bias = zeros({2});
  REQUIRE(names_of(l.named_parameters()) == Names{"weight", "bias"});
  l.bias = Tensor();
  REQUIRE(names_of(l.named_parameters()) == Names{"weight"});
}

TEST_CASE("parameter: a frozen one stays frozen where it is shared", "[quick]") {
  nn::Linear a(2, 2);
  nn::Linear b(2, 2);
  a.weight.set_requires_grad(false);
  b.weight = a.weight;
  REQUIRE(!b.weight.requires_grad());
}

TEST_CASE("parameter: what cannot be trained, or would be in no module, is refused", "[quick]") {
  nn::Linear l(2, 2);
  const Tensor before = l.weight;
  REQUIRE(contains(error_of<Error>([&] { l.weight = l.weight * 2; }),
                   "'weight' would be a tensor of shape [2, 2]"));
  REQUIRE_THROWS_AS(l.weight = zeros({2, 2}, {.dtype = DType::Int64}), DTypeError);
  REQUIRE(l.weight.is_same(before));
  nn::Parameter nobodys;
  REQUIRE(contains(error_of<Error>([&] { nobodys = ones({1}); }), "it belongs to no module"));
  // Tensor w = register_parameter(…).
  static_assert(!std::is_convertible_v<std::shared_ptr<nn::Registration>, Tensor>);
  static_assert(!std::is_assignable_v<Tensor&, std::shared_ptr<nn::Registration>>);
}

TEST_CASE("parameter: a copy is another handle, and one that is no member leaves its tensor behind",
          "[quick]") {
  struct Net : nn::Module {
    Net() {
      nn::Parameter local = register_parameter("w", ones({1}));
      local = full({1}, 2);
      std::vector<nn::Parameter> several;
      several.push_back(register_parameter("v", ones({1})));
      several.push_back(register_parameter("u", ones({1})));  // the vector grows: its elements move
      several[0] = full({1}, 3);
    }
  } net;
  const nn::NamedTensors named = net.named_parameters();
  REQUIRE(names_of(named) == Names{"w", "v", "u"});
  REQUIRE(values(named[0].second) == Values{2});
  REQUIRE(values(named[1].second) == Values{3});

  nn::Linear l(1, 1);
  {
    auto copy = l.weight;
    REQUIRE(copy.is_same(l.weight));
  }
  l.weight = ones({1, 1});
  REQUIRE(l.parameters()[0].is_same(l.weight));
}

}  // namespace ringgrad::test::parameter_test
