// Post-accumulate-grad hooks and final callbacks, on which data parallelism is built.
#include <memory>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::hook_test {

namespace {
Tensor leaf(const std::vector<float>& values) { return Tensor(tensor(values)).set_requires_grad(); }
}  // namespace

TEST_CASE("a hook runs once per backward, when the gradient has its final value", "[hook][quick]") {
  const Tensor x = leaf({2});
  std::vector<float> seen;
  const auto handle = register_post_accumulate_grad_hook(x, [&](const Tensor& same) {
    CHECK(same.shares_memory_with(x));
    seen.push_back(same.grad().item<float>());
  });
  (x * x + x * 3 + x).backward();  // four gradients meet
  CHECK(seen == std::vector<float>{8});
  (x * 2).backward();
  CHECK(seen == std::vector<float>{8, 10});
}

TEST_CASE("hooks of a leaf run in the order of their registration", "[hook][quick]") {
  const Tensor x = leaf({1});
  std::string order;
  std::vector<HookHandle> handles;
  for (char name : {'a', 'b', 'c'})
    handles.push_back(
        register_post_accumulate_grad_hook(x, [&order, name](const Tensor&) { order += name; }));
  handles[1].remove();
  handles.push_back(
      register_post_accumulate_grad_hook(x, [&order](const Tensor&) { order += 'd'; }));
  (x * 2).backward();
  CHECK(order == "acd");
}

TEST_CASE("a hook stays until its handle removes it, whether that is kept or not",
          "[hook][quick]") {
  const Tensor x = leaf({1});
  int calls = 0;
  register_post_accumulate_grad_hook(x, [&](const Tensor&) { calls += 10; });
  {
    HookHandle handle = register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++calls; });
    (x * 2).backward();
    CHECK(calls == 11);
    const HookHandle same = handle;
    handle.remove();
    handle.remove();
    (x * 2).backward();
    CHECK(calls == 21);
  }
  (x * 2).backward();
  CHECK(calls == 31);
}

TEST_CASE("a scoped hook ends with its scope, wherever it was moved", "[hook][quick]") {
  const Tensor x = leaf({1});
  int calls = 0;
  {
    std::vector<ScopedHook> hooks;
    for (int i = 0; i < 3; ++i)
      hooks.emplace_back(register_post_accumulate_grad_hook(x, [&](const Tensor&) { ++calls; }));
    (x * 2).backward();
    CHECK(calls == 3);
  }
  (x * 2).backward();
  CHECK(calls == 3);
}

TEST_CASE("a hook may remove itself and others, and add more", "[hook][quick]") {
  const Tensor x = leaf({1});
  std::string order;
  HookHandle first;
  HookHandle third;
  first = register_post_accumulate_grad_hook(x, [&](const Tensor&) {
    order += 'a';
    first.remove();
    third.remove();
    register_post_accumulate_grad_hook(x, [&](const Tensor&) { order += 'd'; });
  });
  register_post_accumulate_grad_hook(x, [&](const Tensor&) { order += 'b'; });
  third = register_post_accumulate_grad_hook(x, [&](const Tensor&) { order += 'c'; });
  (x * 2).backward();
  CHECK(order == "ab");
  (x * 2).backward();
  CHECK(order == "abbd");
}

TEST_CASE("a handle may outlive its leaf", "[hook][quick]") {
  const auto alive = std::make_shared<int>(0);
  HookHandle handle;
  {
    const Tensor x = leaf({1});
    handle = register_post_accumulate_grad_hook(x, [alive](const Tensor&) {});
    CHECK(alive.use_count() == 2);
  }
  CHECK(alive.use_count() == 1);  // the hook went with its leaf
  handle.remove();
}

TEST_CASE("hooks belong to leaves that want gradients", "[hook][quick]") {
  const char* const text =
      "register_post_accumulate_grad_hook: the tensor of shape [1] is not a "
      "leaf that requires grad";
  require_error<Error>(
      text, [] { auto h = register_post_accumulate_grad_hook(zeros({1}), [](const Tensor&) {}); });
  require_error<Error>(text, [] {
    auto h = register_post_accumulate_grad_hook(leaf({1}) * 2, [](const Tensor&) {});
  });
}

TEST_CASE("hooks of an undefined tensor are refused", "[hook][quick]") {
  require_error<Error>("register_post_accumulate_grad_hook: the tensor is undefined", [] {
    auto h = register_post_accumulate_grad_hook({}, [](const Tensor&) {});
  });
}

TEST_CASE("an exception in a hook leaves backward, and everything stays usable", "[hook][quick]") {
  struct Boom {};
  const Tensor x = leaf({1});
  const Tensor w = leaf({2});
  bool fail = true;
  bool called_back = false;
  int later = 0;
  const auto first = register_post_accumulate_grad_hook(w, [&](const Tensor&) {
    queue_final_callback([&] { called_back = true; });
    if (fail) throw Boom();
  });
  const auto second = register_post_accumulate_grad_hook(w, [&](const Tensor&) { ++later; });
  CHECK_THROWS_AS((x * w).backward(), Boom);
  CHECK(w.grad().item<float>() == 1);  // it was accumulated before its hooks ran
  CHECK(later == 0);
  CHECK(!called_back);
  require_error<Error>("queue_final_callback: no backward pass is running",
                       [] { queue_final_callback([] {}); });

  fail = false;
  x.set_grad({});
  w.set_grad({});
  (x * w).backward();
  CHECK(w.grad().item<float>() == 1);
  CHECK(x.grad().item<float>() == 2);
  CHECK(later == 1);
  CHECK(called_back);
}

TEST_CASE("hooks run without grad mode, and cannot start another backward", "[hook][quick]") {
  const Tensor x = leaf({1});
  const auto handle = register_post_accumulate_grad_hook(x, [&](const Tensor& leaf) {
    CHECK(!(leaf * 2).requires_grad());
    require_error<Error>("backward: called inside a backward pass", [&] { leaf.backward(); });
  });
  (x * 2).backward();
  CHECK((x * 2).requires_grad());
}

TEST_CASE("final callbacks run in order after the last node, before backward returns",
          "[hook][quick]") {
  const Tensor x = leaf({1});
  const Tensor w = leaf({2});
  std::string order;
  const auto on_w = register_post_accumulate_grad_hook(w, [&](const Tensor&) {
    order += 'w';
    queue_final_callback([&] { order += '1'; });
    queue_final_callback([&] { order += '2'; });
  });
  const auto on_x = register_post_accumulate_grad_hook(x, [&](const Tensor&) { order += 'x'; });
  (x * 3 * w).backward();  // w is ready first
  CHECK(order == "wx12");
  (x * 3 * w).backward();  // they are queued anew in every pass
  CHECK(order == "wx12wx12");
}

TEST_CASE("a hook may register one on another output of the same operation", "[hook][quick]") {
  const Tensor x = leaf({1, 2});
  // Two outputs of one node: the halves of x.
  const std::vector<Tensor> parts = differentiable(
      "halves", std::vector<Tensor>{x}, {slice(x.detach(), 0, 0, 1), slice(x.detach(), 0, 1)},
      [](std::span<const Tensor> dy) -> Gradients {
        return {cat({dy[0], dy[1]})};
      });
  const Tensor second = parts[1];
  std::vector<HookHandle> handles;
  int calls = 0;
  handles.push_back(parts[0].register_hook([&](const Tensor& g) {
    handles.push_back(second.register_hook([&](const Tensor&) {
      ++calls;
      return Tensor();
    }));
    return g * 3;
  }));
  (sum(parts[0]) + sum(second) * 2).backward({}, true);
  CHECK(to_vector<float>(x.grad()) == std::vector<float>{3, 2});
  CHECK(calls == 0);  // from the next pass on
  handles[0].remove();
  (sum(parts[0]) + sum(second) * 2).backward();
  CHECK(calls == 1);
}

TEST_CASE("an exception in a final callback leaves backward", "[hook][quick]") {
  struct Boom {};
  const Tensor x = leaf({1});
  bool fail = true;
  const auto handle = register_post_accumulate_grad_hook(x, [&](const Tensor&) {
    queue_final_callback([&] {
      if (fail) throw Boom();
    });
  });
  CHECK_THROWS_AS((x * 2).backward(), Boom);
  fail = false;
  (x * 2).backward();
  CHECK(x.grad().item<float>() == 4);
}

}  // namespace ringgrad::test::hook_test
