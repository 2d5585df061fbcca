// The plan must visit every element once and keep the operands together, for any strides. It must
// merge the dimensions that it can.
#include "ringgrad/core/kernels/loop_plan.h"

#include <set>

#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::loop_plan_test {

namespace {

// Visits all elements by the plan, and requires that the offsets of the operands belong to one
// index, all different.
void check_visits_all(const Tensor& a, const Tensor& b) {
  const LoopPlan plan = plan_loops({&a, &b});
  REQUIRE(plan.numel == a.numel());
  std::set<std::pair<int64_t, int64_t>> wanted;
  std::set<std::pair<int64_t, int64_t>> seen;
  for (int64_t i = 0; i < a.numel(); ++i) {
    int64_t rest = i;
    int64_t of_a = 0;
    int64_t of_b = 0;
    for (int d = a.dim() - 1; d >= 0; --d) {
      of_a += rest % a.size(d) * a.stride(d);
      of_b += rest % a.size(d) * b.stride(d);
      rest /= a.size(d);
    }
    wanted.emplace(of_a, of_b);
    const auto offsets = plan.offsets(i);
    seen.emplace(offsets[0], offsets[1]);
  }
  CHECK(seen == wanted);
}

Tensor view(const Shape& shape, const Strides& strides) {
  return empty({1000}).as_strided(shape, strides, 0);
}

}  // namespace

TEST_CASE("loops over equal dense orders become one", "[loop_plan][quick]") {
  const Tensor a = empty({2, 3, 4});
  const Tensor b = empty({2, 3, 4});
  CHECK(plan_loops({&a, &b}).dims == 1);
  const Tensor c = empty({2, 3, 4, 5}, {.layout = Layout::ChannelsLast});
  const Tensor d = empty({2, 3, 4, 5}, {.layout = Layout::ChannelsLast});
  const LoopPlan plan = plan_loops({&c, &d});
  CHECK(plan.dims == 1);
  CHECK(plan.inner_size() == 120);
  CHECK(plan.inner_stride(0) == 1);
}

TEST_CASE("channel-blocked operands are walked flat, padding included", "[loop_plan][quick]") {
  const Tensor a = empty({2, 17, 3, 3}, {.layout = Layout::ChannelBlocked});
  const Tensor b = empty_like(a);
  const LoopPlan plan = plan_loops({&a, &b});
  CHECK(plan.dims == 1);
  CHECK(plan.numel == 2 * 32 * 9);
}

TEST_CASE("dimensions are merged where every operand can, and not elsewhere",
          "[loop_plan][quick]") {
  const Tensor a = empty({2, 3, 4});
  const Tensor row = view({2, 3, 4}, {0, 0, 1});
  const Tensor matrix = view({2, 3, 4}, {0, 4, 1});
  CHECK(plan_loops({&a, &row}).dims == 2);     // [6, 4]
  CHECK(plan_loops({&a, &matrix}).dims == 2);  // [2, 12]
  const Tensor gaps = view({2, 3, 4}, {24, 8, 2});
  CHECK(plan_loops({&gaps, &gaps}).dims == 1);  // one loop with stride 2
  CHECK(plan_loops({&a, &gaps}).dims == 1);
}

TEST_CASE("the innermost loop follows the first operand's smallest stride", "[loop_plan][quick]") {
  const Tensor transposed = view({3, 4}, {1, 3});
  const Tensor plain = empty({3, 4});
  const LoopPlan plan = plan_loops({&transposed, &plain});
  CHECK(plan.inner_stride(0) == 1);
  CHECK(plan.inner_size() == 3);
}

TEST_CASE("a plan visits every element once", "[loop_plan][quick]") {
  const Tensor a = empty({2, 3, 4});
  check_visits_all(a, a);
  check_visits_all(a, view({2, 3, 4}, {1, 2, 6}));
  check_visits_all(a, view({2, 3, 4}, {12, 0, 1}));
  check_visits_all(a, view({2, 3, 4}, {0, 0, 0}));
  check_visits_all(view({2, 3, 4}, {1, 8, 2}), view({2, 3, 4}, {12, 4, 1}));
  check_visits_all(view({2, 1, 4}, {4, 77, 1}), view({2, 1, 4}, {1, 5, 2}));
  check_visits_all(empty({2, 3, 4, 5}), empty({2, 3, 4, 5}, {.layout = Layout::ChannelsLast}));
  check_visits_all(empty({1, 2, 1, 2, 1, 2, 1, 2}),
                   view({1, 2, 1, 2, 1, 2, 1, 2}, {9, 1, 9, 2, 9, 4, 9, 8}));
  check_visits_all(empty({}), empty({}));
}

TEST_CASE("nothing to do is no loop", "[loop_plan][quick]") {
  const Tensor a = empty({2, 0, 3});
  CHECK(plan_loops({&a, &a}).dims == 0);
}

}  // namespace ringgrad::test::loop_plan_test
