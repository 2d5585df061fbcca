// Children: members, owned ones, and the containers that hold modules by value.
#include "ringgrad/nn/containers.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::containers_test {

namespace {

using Names = std::vector<std::string>;
Names names_of(const nn::NamedTensors& named) {
  Names names;
  for (const auto& [name, tensor] : named) names.push_back(name);
  return names;
}

struct Open : nn::Module {
  using nn::Module::register_module;
};

}  // namespace

TEST_CASE("module: a child given as std::shared_ptr lives as long as its parent", "[quick]") {
  struct Net : nn::Module {
    Net() {
      const auto l = std::make_shared<nn::Linear>(2, 2);
      const std::shared_ptr<nn::Linear> same = register_module("l", l);
      REQUIRE(same == l);
    }
  } net;
  REQUIRE(names_of(net.state_dict()) == Names{"l.weight", "l.bias"});
  REQUIRE(
      contains(error_of<Error>([] { Open().register_module("l", std::shared_ptr<nn::Linear>()); }),
               "'l' is a null"));
}

TEST_CASE("module: a child that was no member and is gone is an error, not a crash", "[quick]") {
  struct Net : nn::Module {
    Net() {
      const auto l = std::make_shared<nn::Linear>(2, 2);
      register_module("l", *l);
    }
  } net;
  const std::string text = "module: 'l' has been destroyed, and was registered as a reference";
  REQUIRE(contains(error_of<Error>([&] { net.parameters(); }), text));
  REQUIRE(contains(error_of<Error>([&] { net.state_dict(); }), text));
  REQUIRE(contains(error_of<Error>([&] { net.eval(); }), text));
  REQUIRE(contains(error_of<Error>([&] { net.named_modules(); }), text));
}

TEST_CASE("module: no module contains itself", "[quick]") {
  Open a;
  Open b;
  REQUIRE_THROWS_AS(a.register_module("a", a), Error);
  a.register_module("b", b);
  REQUIRE(contains(error_of<Error>([&] { b.register_module("a", a); }),
                   "'a' is or contains the module"));
}

TEST_CASE("module: a child under two names is trained once and saved twice", "[quick]") {
  Open net;
  nn::Linear l(1, 1);
  net.register_module("first", l);
  net.register_module("second", l);
  REQUIRE(names_of(net.named_parameters()) == Names{"first.weight", "first.bias"});
  REQUIRE(names_of(net.state_dict()) ==
          Names{"first.weight", "first.bias", "second.weight", "second.bias"});
  REQUIRE(net.named_modules().size() == 2);
}

TEST_CASE("module: one that moves takes its members along", "[quick]") {
  struct Net : nn::Module {
    nn::Linear l{1, 1};
    nn::Sequential more{nn::Linear(1, 1)};
    Net() {
      register_module("l", l);
      register_module("more", more);
    }
  } net;
  Net moved(std::move(net));
  moved.l.weight = full({1, 1}, 7);
  REQUIRE(names_of(moved.named_parameters()) ==
          Names{"l.weight", "l.bias", "more.0.weight", "more.0.bias"});
  REQUIRE(moved.parameters()[0].is_same(moved.l.weight));
  moved.eval();
  REQUIRE(!moved.l.is_training());
}

TEST_CASE("Sequential: of values, of shared pointers, and of Sequentials", "[quick]") {
  const auto shared = std::make_shared<nn::Linear>(2, 1);
  nn::Sequential net(nn::Linear(1, 2), nn::ReLU(), nn::Sequential(shared, nn::Functional(sigmoid)),
                     nn::Functional([](const Tensor& x, double c) { return x * c; }, 3.0));
  REQUIRE(names_of(net.named_parameters()) ==
          Names{"0.weight", "0.bias", "2.0.weight", "2.0.bias"});
  REQUIRE(net.at<nn::Sequential>(2).at<nn::Linear>(0).weight.is_same(shared->weight));
  fill_(net.at<nn::Linear>(0).weight, 1);
  fill_(net.at<nn::Linear>(0).bias, 0);
  fill_(shared->weight, 0);
  fill_(shared->bias, 0);
  REQUIRE(net(ones({1, 1})).item<float>() == 1.5f);
  REQUIRE_THROWS_AS(net[4], std::out_of_range);
  REQUIRE(nn::Sequential()(ones({1})).item<float>() == 1);
}

TEST_CASE("ModuleList and ModuleDict register what they are given", "[quick]") {
  nn::ModuleList list(nn::Linear(1, 1), nn::Tanh());
  list.push_back(std::make_shared<nn::Linear>(1, 2));
  REQUIRE(names_of(list.named_parameters()) == Names{"0.weight", "0.bias", "2.weight", "2.bias"});
  size_t count = 0;
  for (const auto& module : list) count += module->is_training();
  REQUIRE(count == 3);
  REQUIRE_THROWS_AS(list(ones({1})), NotImplementedError);

  nn::ModuleDict dict;
  dict.insert("right", nn::Linear(1, 1));
  dict.insert("left", nn::ReLU());
  REQUIRE(dict.contains("left"));
  REQUIRE(names_of(dict.named_parameters()) == Names{"right.weight", "right.bias"});
  REQUIRE(dict["left"](full({1}, -1)).item<float>() == 0);
  REQUIRE(contains(error_of<Error>([&] { dict["up"]; }),
                   "no module 'up', expected one of: right left"));
  REQUIRE_THROWS_AS(dict.insert("left", nn::ReLU()), Error);
}

}  // namespace ringgrad::test::containers_test
