// The traps of a tape: who owns a gradient, deep graphs, errors in the middle, and order.
#include "ringgrad/autograd/engine.h"

#include <pthread.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::engine_test {

namespace {

using Values = std::vector<double>;

Tensor leaf(const std::vector<float>& values) { return Tensor(tensor(values)).set_requires_grad(); }
Values grad(const Tensor& x) { return to_vector<double>(x.grad()); }

// An identity whose backward is given.
template <class Backward>
Tensor custom(const char* name, const Tensor& x, Backward backward) {
  Tensor y = empty_like(x);
  copy_(y, x);
  return differentiable(name, {x}, y, std::move(backward));
}

}  // namespace

TEST_CASE("a gradient that two receivers hold is never summed in place", "[engine][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = leaf({3, 4});
  const Tensor a = x * 1;
  const Tensor b = y * 1;
  sum(a + b + a * 3).backward();  // add hands the same dy to a and b; a receives another gradient
  CHECK(grad(x) == Values{4, 4});
  CHECK(grad(y) == Values{1, 1});
  CHECK(!x.grad().shares_memory_with(y.grad()));
}

TEST_CASE("leaves do not share the gradient that one addition gave to both", "[engine][quick]") {
  const Tensor x = leaf({1});
  const Tensor y = leaf({2});
  const Tensor z = leaf({3});
  (x + y).backward(z.detach());
  fill_(x.grad(), 100);
  CHECK(grad(y) == Values{3});
  CHECK(z.item<float>() == 3);  // the caller's own tensor is left alone
}

TEST_CASE("the first gradient becomes the leaf's own, without a copy, where nobody else has it",
          "[engine][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor kept = ones({2});
  const void* fresh = nullptr;
  custom("fresh", x, [&](const Tensor&) -> Gradients {
    Tensor dx = ones({2});
    fresh = dx.raw_data();
    return {std::move(dx)};
  }).backward(ones({2}));
  CHECK(x.grad().raw_data() == fresh);
  x.set_grad({});
  custom("kept", x, [&](const Tensor&) -> Gradients { return {kept}; }).backward(ones({2}));
  CHECK(x.grad().raw_data() != kept.raw_data());
}

TEST_CASE("a gradient whose elements share a place is never summed in place", "[engine][quick]") {
  const Tensor x = leaf({1, 2, 3});
  const Tensor z = x * 1;
  (sum(z) * 2 + sum(z) * 3).backward();  // both sums give their gradient to z with stride 0
  CHECK(grad(x) == Values{5, 5, 5});
}

TEST_CASE("gradients of different layouts meet", "[engine][quick]") {
  const Tensor x = Tensor(ones({1, 3, 2, 2})).set_requires_grad();
  const Tensor z = to_layout(x, Layout::ChannelBlocked);
  sum(relu(z) * z + z).backward();  // relu keeps blocks, sum is strided
  CHECK(grad(x) == Values(12, 3));
  CHECK(x.grad().is_contiguous());

  // The same, as the closures say: the layouts above follow from what operations do today.
  const auto with_gradient_in = [](Layout layout, const Tensor& y) {
    return differentiable(
        "with_gradient_in", {y}, y.clone().detach(),
        [layout](const Tensor& dy) -> Gradients { return {to_layout(dy * 1, layout)}; });
  };
  for (const auto& [first, second] : {std::pair(Layout::ChannelBlocked, Layout::Strided),
                                      std::pair(Layout::Strided, Layout::ChannelBlocked)}) {
    const Tensor image = Tensor(ones({1, 3, 2, 2})).set_requires_grad();
    const Tensor y = image * 1;
    sum(with_gradient_in(first, y) * 2 + with_gradient_in(second, y) * 3).backward();
    CHECK(grad(image) == Values(12, 5));
    CHECK(image.grad().is_contiguous());
  }
}

TEST_CASE("a tensor used several times receives the sum, a tensor not used nothing",
          "[engine][quick]") {
  const Tensor x = leaf({3, -1});
  const Tensor unused = leaf({5});
  const Tensor y = x * x + x;
  sum(y * y).backward();  // d/dx (x² + x)² = 2 (x² + x) (2x + 1)
  CHECK(grad(x) == Values{168, 0});
  CHECK(!unused.grad());
}

TEST_CASE("gradients accumulate over backward passes until they are cleared", "[engine][quick]") {
  const Tensor x = leaf({2});
  for (int pass = 1; pass <= 3; ++pass) {
    (x * x).backward();
    CHECK(grad(x) == Values{4.0 * pass});
  }
  x.set_grad({});
  CHECK(!x.grad());
  x.set_grad(tensor<float>({10}));
  (x * x).backward();
  CHECK(grad(x) == Values{14});
}

TEST_CASE("an accumulated gradient stays in the array it was given", "[engine][quick]") {
  const Tensor x = leaf({2});
  const Tensor arena = zeros({3});
  x.set_grad(arena.as_strided({1}, {1}, 1));
  (x * 5).backward();
  (x * 5).backward();
  CHECK(to_vector<double>(arena) == Values{0, 10, 0});
}

TEST_CASE("a gradient that was given expanded or in blocks can be added to", "[engine][quick]") {
  const Tensor x = leaf({1, 2, 3});
  x.set_grad(expand(tensor<float>({1}), {3}));
  sum(x * 2).backward();
  CHECK(grad(x) == Values{3, 3, 3});
  const Tensor image = Tensor(ones({1, 3, 2, 2})).set_requires_grad();
  image.set_grad(to_layout(ones({1, 3, 2, 2}), Layout::ChannelBlocked));
  sum(image * 2).backward();
  CHECK(grad(image) == Values(12, 3));
  // Without its history.
  x.set_grad(image.detach().as_strided({3}, {1}, 0).set_requires_grad() * 5);
  sum(x * 2).backward();
  CHECK(grad(x) == Values{7, 7, 7});
}

TEST_CASE("a chain of a million nodes runs and is destroyed without recursion", "[engine]") {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 1'000'000; ++i) y = y + 1;
  SECTION("backward") {
    y.backward();
    CHECK(grad(x) == Values{1});
  }
  SECTION("destruction alone") {
    y = Tensor();
    CHECK(!x.grad());
  }
}

TEST_CASE("graphs with two edges to each node are destroyed without recursion too",
          "[engine][quick]") {
  constexpr int kNodes = 200'000;
  const Tensor x = leaf({1});
  Tensor y = x;
  SECTION("by one operation") {
    for (int i = 0; i < kNodes; ++i) y = y + y;
  }
  SECTION("by a residual connection") {
    for (int i = 0; i < kNodes; ++i) y = y + y * 0;
    y.backward();
    CHECK(grad(x) == Values{1});
  }
  y = Tensor();
}

TEST_CASE("a deep graph is destroyed on a small stack", "[engine][quick]") {
  Tensor y = leaf({1});
  for (int i = 0; i < 50'000; ++i) y = y + 1;
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 1 << 20);
  pthread_t thread{};
  const auto destroy = [](void* graph) -> void* {
    *static_cast<Tensor*>(graph) = Tensor();
    return nullptr;
  };
  const int error = pthread_create(&thread, &small, destroy, &y);
  pthread_attr_destroy(&small);
  REQUIRE(error == 0);
  pthread_join(thread, nullptr);
  CHECK(!y);
}

TEST_CASE("nodes run newest first, and a leaf as soon as its gradient is complete",
          "[engine][quick]") {
  std::vector<std::string> order;
  const auto traced = [&order](const char* name, const Tensor& x) {
    return custom(name, x, [&order, name](const Tensor& dy) -> Gradients {
      order.push_back(name);
      return {dy};
    });
  };
  const Tensor x = leaf({1});
  const Tensor w1 = leaf({2});
  const Tensor w2 = leaf({3});
  const auto h1 =
      register_post_accumulate_grad_hook(w1, [&](const Tensor&) { order.push_back("w1 ready"); });
  const auto h2 =
      register_post_accumulate_grad_hook(w2, [&](const Tensor&) { order.push_back("w2 ready"); });
  const Tensor first = traced("first", traced("before", x) * w1);
  traced("second", first * w2).backward();
  CHECK(order == std::vector<std::string>{"second", "w2 ready", "first", "w1 ready", "before"});
}

TEST_CASE("a node with several outputs receives all their gradients at once", "[engine][quick]") {
  std::vector<bool> defined;
  const auto halves = [&defined](const Tensor& x) {
    const std::vector<Tensor> inputs = {x};
    return differentiable("halves", inputs,
                          std::vector<Tensor>{as_contiguous(x.as_strided({2}, {1}, 0)).detach(),
                                              as_contiguous(x.as_strided({2}, {1}, 2)).detach()},
                          [&defined](std::span<const Tensor> dy) -> Gradients {
                            defined = {dy[0].defined(), dy[1].defined()};
                            const Tensor zero = zeros({2});
                            return {cat({dy[0] ? dy[0] : zero, dy[1] ? dy[1] : zero})};
                          });
  };
  const Tensor x = leaf({1, 2, 3, 4});
  auto parts = halves(x);
  SECTION("both are used, one twice") {
    sum(parts[0] * 2 + parts[1] + parts[1]).backward();
    CHECK(defined == std::vector<bool>{true, true});
    CHECK(grad(x) == Values{2, 2, 2, 2});
  }
  SECTION("one is used") {
    sum(parts[1] * 5).backward();
    CHECK(defined == std::vector<bool>{false, true});
    CHECK(grad(x) == Values{0, 0, 5, 5});
  }
}

TEST_CASE("no gradient may be returned for an input, and none flows on from there",
          "[engine][quick]") {
  const Tensor x = leaf({1});
  const Tensor y = leaf({2});
  int hooks = 0;
  const auto handle = register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++hooks; });
  const Tensor stopped =
      custom("stop", x * 2, [](const Tensor&) -> Gradients { return {Tensor()}; });
  (stopped * y).backward();
  CHECK(!x.grad());
  CHECK(hooks == 0);
  CHECK(grad(y) == Values{2});
}

TEST_CASE("what a closure returns is checked, and the operation is named", "[engine][quick]") {
  const Tensor x = leaf({1, 2});
  const auto backward_with = [&x](const Gradients& gradients) {
    return [&x, gradients] {
      custom("bad", x, [gradients](const Tensor&) { return gradients; }).backward(ones({2}));
    };
  };
  require_error<ShapeError>("backward of bad: the gradient of input 0 has shape [3], expected [2]",
                            backward_with({zeros({3})}));
  require_error<DTypeError>(
      "backward of bad: the gradient of input 0 has dtype float64, expected float32",
      backward_with({zeros({2}, {.dtype = DType::Float64})}));
  require_error<Error>(
      "backward of bad: returned 2 gradients, expected one for each of the 1 inputs",
      backward_with({zeros({2}), zeros({2})}));
  require_error<Error>("backward of bad: returned 0 gradients", backward_with({}));
  CHECK(!x.grad());
}

TEST_CASE("an exception in a closure leaves backward and everything usable", "[engine][quick]") {
  struct Boom {};
  const Tensor x = leaf({1, 2});
  bool fail = true;
  bool called_back = false;
  const Tensor y = custom("fragile", x, [&](const Tensor& dy) -> Gradients {
    queue_final_callback([&] { called_back = true; });
    if (fail) throw Boom();
    return {dy};
  });
  const Tensor loss = sum(y);
  CHECK_THROWS_AS(loss.backward(), Boom);
  CHECK(!called_back);
  CHECK(grad_enabled());
  CHECK(!x.grad());
  fail = false;
  sum(x * 3).backward();
  CHECK(grad(x) == Values{3, 3});
}

TEST_CASE("a graph is used once", "[engine][quick]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = exp(x);
  const Tensor loss = sum(y);
  loss.backward();
  require_error<Error>(
      "backward: the graph of sum was freed by an earlier backward(), "
      "expected one that no backward has used; compute the loss again, "
      "add the losses and call backward once, or retain the graph: backward({}, true)",
      [&] { loss.backward(); });
  require_error<Error>("the graph of exp was freed", [&] { sum(y * 2).backward(); });
}

TEST_CASE("what backward was called on is checked", "[engine][quick]") {
  const Tensor x = leaf({1, 2});
  require_error<ShapeError>("backward: the tensor has shape [2], expected one element (a loss)",
                            [&] { (x * 2).backward(); });
  require_error<ShapeError>("backward: the gradient has shape [3], expected [2]",
                            [&] { (x * 2).backward(zeros({3})); });
  require_error<DTypeError>("backward: the gradient has dtype float64, expected float32",
                            [&] { (x * 2).backward(zeros({2}, {.dtype = DType::Float64})); });
  const char* const no_graph =
      "backward: the tensor does not depend on any leaf that requires grad";
  require_error<Error>(no_graph, [] { ones({1}).backward(); });
  require_error<Error>(no_graph, [] { Tensor().backward(); });
  x.backward(ones({2}));  // a leaf is its own graph
  CHECK(grad(x) == Values{1, 1});
}

TEST_CASE("leaves are marked, results are not", "[engine][quick]") {
  const Tensor x = leaf({1});
  const Tensor y = x * 2;
  CHECK((x.is_leaf() && x.requires_grad() && !y.is_leaf() && y.requires_grad()));
  CHECK((!y.detach().requires_grad() && y.detach().is_leaf()));
  CHECK(!(zeros({1}) * 2).requires_grad());
  require_error<Error>(
      "set_requires_grad: the tensor was computed by mul, only leaves can be marked",
      [&] { y.set_requires_grad(); });
  require_error<DTypeError>(
      "set_requires_grad: dtype int64 has no gradients, expected a floating dtype",
      [] { arange(3).set_requires_grad(); });
  require_error<ShapeError>("set_grad: the gradient has shape [2], expected [1]",
                            [&] { x.set_grad(zeros({2})); });
  require_error<DTypeError>("set_grad: the gradient has dtype int64",
                            [&] { x.set_grad(arange(1)); });
  x.set_requires_grad(false);
  CHECK(!(x * 2).requires_grad());
}

TEST_CASE("nothing joins the graph under a NoGradGuard, on this thread",
          "[engine][quick][threads]") {
  const Tensor x = leaf({1});
  {
    NoGradGuard no_grad;
    CHECK(!(x * 2).requires_grad());
    { NoGradGuard nested; }
    CHECK(!grad_enabled());
    std::thread([&] { CHECK((x * 2).requires_grad()); }).join();
  }
  CHECK((x * 2).requires_grad());
}

TEST_CASE("threads use one leaf in graphs of their own at the same time",
          "[engine][quick][threads]") {
  const Tensor w = leaf({3});
  std::vector<std::thread> threads;
  std::atomic<int> tracked = 0;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([w, &tracked] {
      for (int pass = 0; pass < 2000; ++pass) tracked += mul(w, 2).requires_grad();
    });
  for (auto& thread : threads) thread.join();
  CHECK(tracked == 4000);
}

TEST_CASE("threads run backward on graphs of their own at the same time",
          "[engine][quick][threads]") {
  std::vector<double> results(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([i, &results] {
      const Tensor x = leaf({static_cast<float>(i + 1)});
      for (int pass = 0; pass < 50; ++pass) (x * x).backward();
      results[i] = grad(x)[0];
    });
  for (auto& thread : threads) thread.join();
  CHECK(results == Values{100, 200, 300, 400});
}

}  // namespace ringgrad::test::engine_test
