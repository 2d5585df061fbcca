// Operations may write a gradient directly into its final memory. The numbers must be those of an
// addition, whatever else adds to the parameter's gradient, reads it, or writes it.
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/grad_hooks.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/nn/recompute.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::gradient_home_test {

namespace {

// A weight and what batch norm has, in an arena; the gradient of w is 1 + 2 + 3 + 4 of x
// everywhere.
struct Parameters {
  Tensor w = Tensor(ones({1, 1, 1, 1})).set_requires_grad(),
         gamma = Tensor(ones({1})).set_requires_grad();
  Tensor x = tensor<float>({1, 2, 3, 4}, {1, 1, 2, 2});
  optim::SGD optimizer{nn::NamedTensors{{"w", w}, {"gamma", gamma}}, optim::SGDOptions{.lr = 0.1}};

  Tensor loss() const { return sum(conv2d(x, w)); }
  float grad() const { return w.grad().item<float>(); }
};

// How often a pass adds and copies.
struct Work {
  int64_t adds;
  int64_t copies;
};
Work work_of(const Tensor& loss) {
  const KernelProfile profile;
  loss.backward();
  const auto calls_of = [&](std::string_view kernel) {
    return std::ranges::count(profile.calls(), kernel, &KernelCall::kernel);
  };
  return {calls_of("add"), calls_of("copy")};
}

}  // namespace

TEST_CASE("a gradient that is known to be zeros is written, not added to", "[quick]") {
  Parameters p;
  for (int step = 0; step < 2; ++step) {
    p.optimizer.zero_grad();
    const void* const place = p.w.grad().raw_data();
    CHECK(work_of(p.loss()).adds == 0);
    CHECK(p.grad() == 10);
    CHECK(p.w.grad().raw_data() == place);
  }
  CHECK(work_of(p.loss()).adds == 1);  // the gradient was not set to zero
  CHECK(p.grad() == 20);
}

TEST_CASE("operations write their weight's gradient, once in a pass", "[quick]") {
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  const Tensor index = tensor<int64_t>({0, 2, 0});
  const auto ones_of = [](const Shape& shape) { return Tensor(ones(shape)).set_requires_grad(); };
  struct Case {
    Tensor w;
    std::function<Tensor(const Tensor& w)> product;
    std::vector<float> row_or_column;  // of the gradient: sums over a dimension of x
    int64_t repeats;                   // of each number, side by side
    bool is_copied = false;            // by the engine
  };
  const std::vector<Case> cases = {
      {ones_of({4, 2}), [&](const Tensor& w) { return linear(x, w); }, {9, 12}, 1},
      {ones_of({2, 4}), [&](const Tensor& w) { return matmul(x, w); }, {9, 12}, 4},
      {ones_of({4, 3}), [&](const Tensor& w) { return matmul(w, x); }, {3, 7, 11}, 1},
      {ones_of({4, 3}),
       [&](const Tensor& w) {
         return matmul(w, stack({x, x}));
       },
       {6, 14, 22},
       1},
      {ones_of({4, 2}), [&](const Tensor& w) { return embedding(index, w); }, {2, 0, 1, 0}, 2},
      {ones_of({1, 1, 2, 2}),
       [&](const Tensor& w) {
         return conv_transpose2d(reshape(x, {1, 1, 3, 2}), w);
       },
       {21},
       1},
      {ones_of({2}), [&](const Tensor& w) { return mul(x, w); }, {9, 12}, 1, true},
  };
  for (const auto& [w, product, numbers, repeats, is_copied] : cases) {
    optim::SGD optimizer{nn::NamedTensors{{"w", w}}, optim::SGDOptions{.lr = 0.1}};
    const auto loss = [&, &w = w, &product = product] { return sum(product(w)); };
    const auto check = [&, &w = w, &numbers = numbers, repeats = repeats](float times) {
      for (int64_t i = 0; i < w.numel(); ++i)
        CHECK(w.grad().data<float>()[i] ==
              times * numbers[static_cast<size_t>(i / repeats) % numbers.size()]);
    };
    optimizer.zero_grad();
    const void* const place = w.grad().raw_data();
    const Work writing = work_of(loss());
    CHECK(writing.adds == 0);
    check(1);
    optimizer.zero_grad();
    (loss() + 2 * loss()).backward();
    check(3);
    const Work adding = work_of(loss());
    CHECK(adding.adds == 1);
    CHECK(writing.copies == adding.copies + is_copied);
    check(4);
    CHECK(w.grad().raw_data() == place);
  }
}

TEST_CASE("parameters of several groups are known to be zeros", "[quick]") {
  const auto leaf = [] { return Tensor(ones({1, 1, 1, 1})).set_requires_grad(); };
  const std::vector<Tensor> w = {leaf(), leaf(), leaf()};
  optim::SGD optimizer({{std::vector<Tensor>{w[0]}, {.lr = 0.1}},
                        {std::vector<Tensor>{w[1]}, {.lr = 0.2}},
                        {std::vector<Tensor>{w[2]}, {.lr = 0.3}}});
  optimizer.zero_grad();
  const Tensor x = tensor<float>({1, 2, 3, 4}, {1, 1, 2, 2});
  CHECK(work_of(sum(conv2d(conv2d(conv2d(x, w[0]), w[1]), w[2]))).adds == 0);
  for (const Tensor& weight : w) CHECK(weight.grad().item<float>() == 10);
}

TEST_CASE("a hook may set the gradient that is being computed", "[quick]") {
  Parameters p;
  p.optimizer.zero_grad();
  const Tensor other = mul(p.w, 1.0);  // its node runs after the convolution's
  other.register_hook([&](const Tensor& grad) {
    p.w.set_grad(p.w.grad());
    return grad;
  });
  (p.loss() + sum(other)).backward();
  CHECK(p.grad() == 11);
}

TEST_CASE("a parameter that is used twice gets both gradients", "[quick]") {
  Parameters p;
  p.optimizer.zero_grad();
  (p.loss() + 3 * p.loss()).backward();
  CHECK(p.grad() == 40);
  p.optimizer.zero_grad();
  (p.loss() + sum(p.w) * 5.0).backward();  // the other one is not a convolution
  CHECK(p.grad() == 15);
}

TEST_CASE("what somebody has written to a zeroed gradient stays", "[quick]") {
  Parameters p;
  p.optimizer.zero_grad();
  fill_(p.w.grad(), 7);
  p.loss().backward();
  CHECK(p.grad() == 17);
  p.optimizer.zero_grad();
  p.w.set_grad(full({1, 1, 1, 1}, 5));
  p.loss().backward();
  CHECK(p.grad() == 15);
}

TEST_CASE("a gradient that the user sets is added to, whatever the version of its memory",
          "[quick]") {
  for (int writes = 0; writes < 12; ++writes) {
    Parameters p;
    p.optimizer.zero_grad();
    const Tensor own = full({1, 1, 1, 1}, 5);
    for (int i = 0; i < writes; ++i) fill_(own, 5);
    p.w.set_grad(own);
    p.loss().backward();
    CHECK(p.grad() == 15);
  }
}

TEST_CASE("autograd::grad leaves zeroed gradients alone", "[quick]") {
  Parameters p;
  p.optimizer.zero_grad();
  CHECK(autograd::grad({p.loss()}, {p.w})[0].item<float>() == 10);
  CHECK(p.grad() == 0);
  p.loss().backward();
  CHECK(p.grad() == 10);
}

TEST_CASE("a hook's gradient takes the place of what was computed", "[quick]") {
  Parameters p;
  p.w.register_hook([](const Tensor& grad) { return grad * 2.0; });
  p.optimizer.zero_grad();
  p.loss().backward();
  CHECK(p.grad() == 20);
}

TEST_CASE("after a pass that failed, the next one does not see what it left", "[quick]") {
  Parameters p;
  p.optimizer.zero_grad();
  const Tensor fails = conv2d(p.x, p.w);
  bool fail = true;
  const Tensor before = mul(p.w, 1.0);  // its node runs after the convolution's
  before.register_hook([&](const Tensor& grad) {
    if (fail) throw Error("hook");
    return grad;
  });
  CHECK_THROWS_AS((sum(fails) + sum(before)).backward(), Error);
  CHECK(p.grad() == 0);
  fail = false;
  SECTION("nobody has written since") {
    p.loss().backward();
    CHECK(p.grad() == 10);
  }
  SECTION("somebody has") {
    fill_(p.w.grad(), 7);
    p.loss().backward();
    CHECK(p.grad() == 17);
  }
  SECTION("it keeps a graph of the gradients") {
    autograd::backward(square(p.loss()), {.create_graph = true});
    CHECK(p.grad() == 200);
    CHECK(p.w.grad().requires_grad());
    p.w.set_grad({});  // its history keeps both alive
  }
}

TEST_CASE("an operation may read the gradient of another parameter", "[quick]") {
  const Tensor v = Tensor(ones({1, 2})).set_requires_grad();
  const Tensor w = Tensor(ones({1, 2})).set_requires_grad();
  const Tensor filter = Tensor(ones({1, 1, 1, 1})).set_requires_grad();
  const Tensor gamma = Tensor(ones({1})).set_requires_grad();
  optim::SGD optimizer(nn::NamedTensors{{"v", v}, {"w", w}, {"filter", filter}, {"gamma", gamma}},
                       optim::SGDOptions{.lr = 0.1});
  const auto seen = [&] { return v.grad(); };
  const auto image = [&] { return reshape(seen(), {1, 1, 1, 2}); };
  const auto pixels = [&] { return reshape(seen(), {2, 1}); };
  const std::vector<std::pair<Tensor, std::function<Tensor()>>> cases = {
      {w, [&] { return linear(seen(), w); }},
      {w, [&] { return matmul(pixels(), w); }},
      {filter, [&] { return conv2d(image(), filter); }},
      {filter, [&] { return conv_transpose2d(image(), filter, {}, {.stride = 2}); }},
      {gamma,
       [&] {
         return batch_norm(pixels(), gamma, {}, {}, {}) * tensor<float>({1, 2}, {2, 1});
       }},
  };
  for (const auto& [leaf, operation] : cases) {
    optimizer.zero_grad();
    sum(v * tensor<float>({3, 4}, {1, 2})).backward();  // the others are still known to be zeros
    sum(operation()).backward();
    const std::vector<float> written = to_vector<float>(leaf.grad());
    sum(operation()).backward();
    for (size_t i = 0; i < written.size(); ++i) {
      CHECK(written[i] != 0);
      CHECK(leaf.grad().data<float>()[i] == 2 * written[i]);
    }
  }
}

TEST_CASE("a parameter may be converted between forward and backward", "[quick]") {
  Parameters p;
  const Tensor loss = p.loss();
  p.w.set_grad({});
  p.w.set_data(to(p.w, DType::Float64).detach());
  optim::SGD optimizer(nn::NamedTensors{{"w", p.w}}, {.lr = 0.1});
  optimizer.zero_grad();
  loss.backward();
  CHECK(p.w.grad().dtype() == DType::Float64);
  CHECK(p.w.grad().item<double>() == 10);
}

TEST_CASE("a gradient that does not arrive is zeros again", "[quick]") {
  Parameters p;
  p.optimizer.zero_grad();
  p.x.set_requires_grad();
  p.w.set_requires_grad(false);
  const Tensor loss = nn::checkpoint([&](const Tensor& x) { return sum(conv2d(x, p.w)); }, p.x);
  p.w.set_requires_grad();  // after the first run, and before the second
  loss.backward();
  CHECK(p.grad() == 0);
  p.loss().backward();
  CHECK(p.grad() == 10);
}

TEST_CASE("batch norm writes the gradients of its weight and bias", "[quick]") {
  Parameters p;
  const Tensor bias = Tensor(zeros({1})).set_requires_grad();
  optim::SGD optimizer(nn::NamedTensors{{"gamma", p.gamma}, {"bias", bias}}, {.lr = 0.1});
  const auto gradients = [&] {
    sum(batch_norm(p.x, p.gamma, bias, {}, {}) * p.x).backward();
    return std::pair(p.gamma.grad().item<float>(), bias.grad().item<float>());
  };
  optimizer.zero_grad();
  const auto written = gradients();
  const auto doubled = gradients();
  CHECK(written.second == 10);
  CHECK(doubled == std::pair(2 * written.first, 2 * written.second));
}

}  // namespace ringgrad::test::gradient_home_test
