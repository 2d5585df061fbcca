// Optimizers against their formulas in double precision; their state through moves, files and
// resumption.
#include <cmath>
#include <type_traits>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizer.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::optim_test {

namespace {

// One step of the formula that a kernel's contract gives, in double precision, for one element.
struct Element {
  double value;
  double momentum = 0;
  double m = 0;
  double v = 0;
  double max_v = 0;
};
void reference(Element& e, double g, int64_t step, const optim::SGDOptions& o) {
  g = (o.maximize ? -g : g) + o.weight_decay * e.value;
  e.momentum = step == 0 ? g : o.momentum * e.momentum + (1 - o.dampening) * g;
  e.value -= o.lr * (o.momentum == 0 ? g : o.nesterov ? g + o.momentum * e.momentum : e.momentum);
}
template <class Options>
void reference(Element& e, double g, int64_t step, const Options& o) {
  if (o.maximize) g = -g;
  if (std::is_same_v<Options, optim::AdamWOptions>)
    e.value -= o.lr * o.weight_decay * e.value;
  else
    g += o.weight_decay * e.value;
  const double t = static_cast<double>(step + 1);
  e.m = o.betas.first * e.m + (1 - o.betas.first) * g;
  e.v = o.betas.second * e.v + (1 - o.betas.second) * g * g;
  e.max_v = std::max(e.max_v, e.v);
  e.value -= o.lr * e.m / (1 - std::pow(o.betas.first, t)) /
             (std::sqrt((o.amsgrad ? e.max_v : e.v) / (1 - std::pow(o.betas.second, t))) + o.eps);
}

// Four steps over three tensors, the rate halved after the second one.
template <class Optimizer, class Options>
void check_formula(Options options, DType dtype, double tolerance) {
  manual_seed(11);
  std::vector<Tensor> parameters;
  for (const Shape& shape : {Shape{5, 3}, Shape{}, Shape{40}})
    parameters.push_back(randn(shape, {.dtype = dtype}).set_requires_grad());
  std::vector<std::vector<Element>> expected;
  for (const Tensor& p : parameters) {
    expected.emplace_back();
    for (double value : to_vector<double>(p)) expected.back().push_back({value});
  }
  Optimizer optimizer(parameters, options);
  for (int64_t step = 0; step < 4; ++step) {
    if (step == 2) optimizer.set_lr(options.lr /= 2);
    optimizer.zero_grad();
    for (size_t p = 0; p < parameters.size(); ++p) {
      normal_(parameters[p].grad(), 0, 1);
      const auto gradient = to_vector<double>(parameters[p].grad());
      for (size_t i = 0; i < gradient.size(); ++i)
        reference(expected[p][i], gradient[i], step, options);
    }
    optimizer.step();
  }
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto values = to_vector<double>(parameters[p]);
    for (size_t i = 0; i < values.size(); ++i) {
      INFO("parameter " << p << ", element " << i << ": " << values[i] << ", expected "
                        << expected[p][i].value);
      REQUIRE(std::abs(values[i] - expected[p][i].value) <= tolerance);
    }
  }
}

struct Net : nn::Module {
  nn::Linear a{3, 4};
  nn::Linear b{4, 2};
  Net() {
    register_module("a", a);
    register_module("b", b);
  }
};

// Gradients that depend on the values: of half the sum of squares of (w - 1) over the parameters
// that want one.
void backward(const nn::Module& net) {
  for (const Tensor& p : net.parameters()) {
    if (!p.requires_grad()) continue;
    const Tensor off = add(p, -1);
    mul(sum(mul(off, off)), 0.5).backward();
  }
}

using MakeOptimizer = std::function<std::unique_ptr<optim::Optimizer>(const nn::Module&)>;
std::unique_ptr<optim::Optimizer> make_sgd(const nn::Module& net) {
  return std::make_unique<optim::SGD>(net.named_parameters(),
                                      optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
}
std::unique_ptr<optim::Optimizer> make_adam(const nn::Module& net) {
  return std::make_unique<optim::Adam>(net.named_parameters(), optim::AdamOptions{.lr = 0.1});
}

// The parameters after six steps, with something happening after the third.
std::vector<std::vector<float>> train(
    const MakeOptimizer& make,
    const std::function<void(Net&, std::unique_ptr<optim::Optimizer>&)>& happens) {
  manual_seed(3);
  Net net;
  auto optimizer = make(net);
  for (int step = 0; step < 6; ++step) {
    if (step == 3 && happens) happens(net, optimizer);
    optimizer->zero_grad();
    backward(net);
    optimizer->step();
  }
  std::vector<std::vector<float>> values;
  for (const Tensor& p : net.parameters()) values.push_back(to_vector<float>(p));
  return values;
}

}  // namespace

// The same against PyTorch's numbers: tests/golden_ops_test.cpp.
TEST_CASE("optim: steps follow their formulas", "[quick]") {
  // A few roundings a step, of values around 1.
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::Float64, 1e-14), std::pair(DType::Float32, 5e-6)}) {
    using optim::SGD, optim::SGDOptions, optim::Adam, optim::AdamOptions, optim::AdamW,
        optim::AdamWOptions;
    check_formula<SGD>(SGDOptions{.lr = 0.1}, dtype, tolerance);
    check_formula<SGD>(SGDOptions{.lr = 0.1, .weight_decay = 0.1}, dtype, tolerance);
    check_formula<SGD>(
        SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.1}, dtype,
        tolerance);
    check_formula<SGD>(
        SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}, dtype,
        tolerance);
    check_formula<Adam>(AdamOptions{.lr = 0.1}, dtype, tolerance);
    check_formula<Adam>(
        AdamOptions{.lr = 0.1, .betas = {0.8, 0.9}, .eps = 0.1, .weight_decay = 0.1}, dtype,
        tolerance);
    check_formula<AdamW>(AdamWOptions{.lr = 0.1}, dtype, tolerance);
    check_formula<AdamW>(
        AdamWOptions{.lr = 0.1, .betas = {0.8, 0.9}, .eps = 0.1, .weight_decay = 0.1}, dtype,
        tolerance);
    check_formula<SGD>(
        SGDOptions{
            .lr = 0.1, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .maximize = true},
        dtype, tolerance);
    check_formula<Adam>(
        AdamOptions{.lr = 0.1, .betas = {0.8, 0.5}, .weight_decay = 0.1, .amsgrad = true}, dtype,
        tolerance);
    check_formula<AdamW>(
        AdamWOptions{.lr = 0.1, .betas = {0.8, 0.5}, .eps = 0.1, .amsgrad = true, .maximize = true},
        dtype, tolerance);
  }
}

TEST_CASE("optim: maximize climbs in every optimizer, and leaves the gradients as they are",
          "[quick]") {
  const auto climbs = [](auto make) {
    const Tensor x = zeros({3}).set_requires_grad();
    const std::unique_ptr<optim::Optimizer> optimizer = make(std::vector<Tensor>{x});
    for (int step = 0; step < 3; ++step) {
      optimizer->zero_grad();
      sum(x).backward();
      optimizer->step();
      CHECK(to_vector<float>(x.grad()) == std::vector<float>(3, 1));
    }
    CHECK(to_vector<float>(x)[0] > 0);
  };
  using namespace optim;
  climbs([](auto x) { return std::make_unique<SGD>(x, SGDOptions{.maximize = true}); });
  climbs([](auto x) { return std::make_unique<Adam>(x, AdamOptions{.maximize = true}); });
  climbs([](auto x) { return std::make_unique<AdamW>(x, AdamWOptions{.maximize = true}); });
  climbs([](auto x) { return std::make_unique<RMSprop>(x, RMSpropOptions{.maximize = true}); });
  climbs([](auto x) { return std::make_unique<Adagrad>(x, AdagradOptions{.maximize = true}); });
  climbs([](auto x) { return std::make_unique<Adadelta>(x, AdadeltaOptions{.maximize = true}); });
}

TEST_CASE("optim: AMSGrad's largest squares are part of the state, and training goes on with them",
          "[quick]") {
  const MakeOptimizer make = [](const nn::Module& net) {
    return std::make_unique<optim::Adam>(
        net.named_parameters(),
        optim::AdamOptions{.lr = 0.1, .betas = {0.9, 0.5}, .amsgrad = true});
  };
  const auto whole = train(make, {});
  const auto resumed = train(make, [&](Net& net, std::unique_ptr<optim::Optimizer>& optimizer) {
    nn::NamedTensors state;
    bool found = false;
    for (const auto& [name, tensor] : optimizer->state_dict()) {
      state.emplace_back(name, clone(tensor));
      found = found || (name == "max_exp_avg_sq.a.weight" && tensor.max().item<float>() > 0);
    }
    REQUIRE(found);
    optimizer = make(net);
    optimizer->load_state_dict(state);
  });
  CHECK(resumed == whole);
  CHECK(train(make_adam, {}) != whole);
}

TEST_CASE("optim: the variance of equal gradients has a root, in every dtype", "[quick]") {
  const DType dtype = GENERATE(DType::Float64, DType::Float32, DType::BFloat16, DType::Float16);
  const double gradient = GENERATE(1e-3, 0.3, 1.7);
  const Tensor param = to(ones({64}), dtype).set_requires_grad();
  optim::RMSprop optimizer(
      std::vector<Tensor>{param},
      {.lr = 1e-3, .alpha = 0.5, .eps = 0.1, .centered = true});  // soon equal to g and g²
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    for (int64_t i = 0; i < 64; ++i)
      fill_(slice(param.grad(), 0, i, i + 1), gradient * (1 + 0.01 * i));
    optimizer.step();
  }
  for (const double value : to_vector<double>(param)) CHECK((std::isfinite(value) && value <= 1));
}

TEST_CASE("optim: groups have options and rates of their own", "[quick]") {
  const Tensor a = ones({2}).set_requires_grad();
  const Tensor b = ones({2}).set_requires_grad();
  optim::SGD optimizer(
      {{std::vector<Tensor>{a}, {.lr = 0.5}},
       {std::vector<Tensor>{b}, {.lr = 0.25, .momentum = 0.5, .weight_decay = 1}}});
  const auto step = [&] {
    fill_(a.grad(), 1);
    fill_(b.grad(), 1);
    optimizer.step();
  };
  step();
  REQUIRE(to_vector<float>(a) == std::vector<float>{0.5, 0.5});
  REQUIRE(to_vector<float>(b) == std::vector<float>{0.5, 0.5});  // 1 - 0.25 (1 + 1)
  optimizer.set_lr(1, 0.5);
  step();
  REQUIRE(to_vector<float>(a) == std::vector<float>{0, 0});
  REQUIRE(to_vector<float>(b) == std::vector<float>{-0.75, -0.75});  // 0.5 - 0.5 (0.5 · 2 + 1.5)
  REQUIRE(optimizer.num_groups() == 2);
  REQUIRE(optimizer.lr(0) == 0.5);
  optimizer.set_lr(0.125);
  REQUIRE(optimizer.lr(0) == 0.125);
  REQUIRE(optimizer.lr(1) == 0.125);
}

TEST_CASE("optim: the parameters lie in one range, and zero_grad keeps their gradients' memory",
          "[quick]") {
  Net net;
  optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  REQUIRE(arena_ranges(net.parameters()).size() == 1);
  backward(net);
  const void* place = net.a.weight.grad().raw_data();
  optimizer.zero_grad();
  REQUIRE(net.a.weight.grad().raw_data() == place);
  REQUIRE(to_vector<float>(net.a.weight.grad()) == std::vector<float>(12, 0));
}

TEST_CASE("optim: parameters that want no gradient stay as they are", "[quick]") {
  Net net;
  net.a.weight.set_requires_grad(false);
  const auto before = to_vector<float>(net.a.weight);
  optim::SGD optimizer(net.parameters(), {.lr = 0.1, .weight_decay = 1});
  for (const Tensor& p : {net.a.bias, net.b.weight, net.b.bias}) fill_(p.grad(), 1);
  optimizer.step();
  REQUIRE(to_vector<float>(net.a.weight) == before);
  REQUIRE(!net.a.weight.grad());
}

TEST_CASE(
    "optim: a parameter that was frozen when the optimizer was made trains once it is unfrozen",
    "[quick]") {
  Net net;
  Net free;
  for (size_t i = 0; i < net.parameters().size(); ++i)
    copy_(free.parameters()[i].detach(), net.parameters()[i]);
  net.a.weight.set_requires_grad(false);
  optim::Adam optimizer(net.named_parameters(), {.lr = 0.1});
  optim::Adam of_free(free.named_parameters(), {.lr = 0.1});
  const size_t names = optimizer.state_dict().size();
  net.a.weight.set_requires_grad();
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    of_free.zero_grad();
    backward(net);
    backward(free);
    optimizer.step();
    of_free.step();
  }
  for (size_t i = 0; i < net.parameters().size(); ++i)
    CHECK(to_vector<float>(net.parameters()[i]) == to_vector<float>(free.parameters()[i]));
  CHECK(optimizer.state_dict().size() == names + 2);
}

TEST_CASE("optim: a parameter that is frozen later stays, and the others go on as before",
          "[quick]") {
  for (const MakeOptimizer& make : {MakeOptimizer(make_sgd), MakeOptimizer(make_adam)})
    for (const size_t frozen : {0, 1}) {  // a.weight, the arena's last; a.bias, in the middle
      auto expected = train(make, {});
      const auto found = train(make, [&](Net& net, auto&) {
        const Tensor p = net.parameters()[frozen];
        p.set_requires_grad(false);
        REQUIRE(to_vector<float>(p) != expected[frozen]);
        expected[frozen] = to_vector<float>(p);
      });
      REQUIRE(found == expected);
    }
}

TEST_CASE("optim: several parameters may want no gradient from the beginning", "[quick]") {
  const Tensor w = ones({2}).detach().set_requires_grad();
  const Tensor frozen = ones({2});
  CHECK_NOTHROW(optim::SGD(std::vector<Tensor>{w, frozen, ones({3})}, {.lr = 1}));
  require_error<Error>("parameter '2' comes twice", [&] {
    optim::SGD(std::vector<Tensor>{w, frozen, frozen}, {.lr = 1});
  });
}

TEST_CASE("optim: a step shows as a modification to what was saved for backward", "[quick]") {
  const Tensor w = ones({2}).set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 0.1});
  const Tensor loss = sum(mul(w, w));
  optimizer.step();
  REQUIRE_THROWS_AS(loss.backward(), Error);
}

TEST_CASE("optim: state follows parameters that are laid anew, bit for bit", "[quick]") {
  for (const MakeOptimizer& make : {MakeOptimizer(make_sgd), MakeOptimizer(make_adam)}) {
    const auto expected = train(make, {});
    // Into another order, as a data-parallel wrapper does.
    REQUIRE(train(make, [](Net& net, auto&) {
              flatten_parameters(
                  {net.b.weight, net.a.bias, net.b.bias, net.a.weight},
                  [](int64_t n, TensorOptions options) { return zeros({n}, options); });
            }) == expected);
    // Into two arenas.
    REQUIRE(train(make, [](Net& net, auto&) {
              flatten_parameters({net.a.weight, net.b.weight});
              REQUIRE(arena_ranges(net.parameters()).size() > 1);
            }) == expected);
    // To another dtype and back: the state of three steps is not exact in 16 bits, but in float64.
    REQUIRE(train(make, [](Net& net, auto& optimizer) {
              net.to(DType::Float64);
              REQUIRE(optimizer->state_dict().back().second.dtype() == DType::Float64);
              net.to(DType::Float32);
            }) == expected);
  }
}

TEST_CASE("optim: training goes on bit for bit from a file", "[quick]") {
  const TempFolder folder;
  for (const MakeOptimizer& make : {MakeOptimizer(make_sgd), MakeOptimizer(make_adam)}) {
    const auto resumed = train(make, [&](Net& net, std::unique_ptr<optim::Optimizer>& optimizer) {
      optimizer->set_lr(0.0625);
      nn::save_checkpoint(folder / "c", {.model = net.state_dict(),
                                         .optimizer = optimizer->state_dict(),
                                         .random = {},
                                         .progress = {}});
      for (const Tensor& p : net.parameters()) fill_(p, 0);
      optimizer = make(net);
      const nn::Checkpoint loaded = nn::load_checkpoint(folder / "c");
      net.load_state_dict(loaded.model);
      optimizer->load_state_dict(loaded.optimizer);
      REQUIRE(optimizer->lr() == 0.0625);
    });
    REQUIRE(resumed == train(make, [](Net&, auto& optimizer) { optimizer->set_lr(0.0625); }));
  }
}

TEST_CASE("optim: the state's names, and what does not fit", "[quick]") {
  Net net;
  const auto names_of = [](optim::Optimizer& optimizer) {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : optimizer.state_dict()) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  };
  const auto sgd = make_sgd(net);
  REQUIRE(names_of(*sgd) == std::vector<std::string>{"lr.0", "momentum.a.bias", "momentum.a.weight",
                                                     "momentum.b.bias", "momentum.b.weight",
                                                     "step"});
  optim::SGD plain(net.parameters());
  REQUIRE(names_of(plain) == std::vector<std::string>{"lr.0", "step"});
  optim::AdamW unnamed(std::vector<Tensor>{net.a.bias});
  REQUIRE(names_of(unnamed) ==
          std::vector<std::string>{"exp_avg.0", "exp_avg_sq.0", "lr.0", "step"});
  REQUIRE(contains(error_of<DataError>([&] { sgd->load_state_dict(plain.state_dict()); }),
                   "momentum.a.bias"));
}

TEST_CASE(
    "optim: a state with a learning rate or a step that cannot be is refused, "
    "and nothing is loaded",
    "[quick]") {
  const auto [name, bad] =
      GENERATE(std::pair("lr.0", NAN), std::pair("lr.0", -1.f), std::pair("step", -5.f));
  const std::string prefix = GENERATE("", "module.");
  const Tensor w = ones({2}).set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{w}, {.lr = 0.5, .momentum = 0.9});
  nn::NamedTensors state;
  for (const auto& [own, tensor] : optimizer.state_dict())
    state.emplace_back(prefix + own,
                       full(tensor.shape(), own == name ? bad : 3, {.dtype = DType::Float32}));
  REQUIRE(contains(error_of<DataError>([&] { optimizer.load_state_dict(state); }),
                   str("'", prefix, name, "' is ")));
  REQUIRE(optimizer.lr() == 0.5);
  for (const auto& [own, tensor] : optimizer.state_dict())
    REQUIRE(to_vector<double>(tensor)[0] == (own == "lr.0" ? 0.5 : 0));
}

TEST_CASE("optim: what cannot be optimised is refused", "[quick]") {
  const Tensor w = ones({2}).set_requires_grad();
  using Tensors = std::vector<Tensor>;
  REQUIRE_THROWS_AS(optim::SGD(Tensors{}), Error);
  REQUIRE_THROWS_AS(optim::SGD(Tensors{ones({2})}), Error);
  REQUIRE_THROWS_AS(optim::SGD(Tensors{Tensor()}), Error);
  REQUIRE_THROWS_AS(optim::SGD(Tensors{add(w, 1)}), Error);
  REQUIRE(contains(error_of<Error>([&] { optim::SGD(Tensors{w, w}); }), "comes twice"));
  const Tensor frozen = ones({2});
  REQUIRE(contains(error_of<Error>([&] {
                     optim::SGD(Tensors{w, frozen, frozen});
                   }),
                   "comes twice"));
  REQUIRE_THROWS_AS(optim::SGD(Tensors{w}, {.lr = -1}), Error);
  REQUIRE_THROWS_AS(optim::SGD(Tensors{w}, {.lr = NAN}), Error);
  REQUIRE_THROWS_AS(optim::SGD(Tensors{w}, {.momentum = -1}), Error);
  REQUIRE_THROWS_AS(optim::SGD(Tensors{w}, {.nesterov = true}), Error);
  REQUIRE_THROWS_AS(optim::Adam(Tensors{w}, {.betas = {1, 0.999}}), Error);
  REQUIRE_THROWS_AS(optim::Adam(Tensors{w}, {.eps = -1}), Error);
  REQUIRE_THROWS_AS(optim::SGD(Tensors{w}).set_lr(-1), Error);
  REQUIRE(contains(error_of<IndexError>([&] { optim::SGD(Tensors{w}).set_lr(1, 0.1); }),
                   "no parameter group 1"));
  REQUIRE_THROWS_AS(optim::SGD(Tensors{w}).lr(-1), IndexError);
}

}  // namespace ringgrad::test::optim_test
