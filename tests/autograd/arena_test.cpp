// Parameters in flat arenas: their places, handles that follow them, and ranges that count as one.
#include "ringgrad/autograd/arena.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::arena_test {
using test::require_error;

namespace {

// Leaves filled with first, first + 1, …
Tensor leaf(const Shape& shape, double first, DType dtype = DType::Float32) {
  std::vector<double> values(shape.numel());
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i);
  Tensor x = empty(shape, {dtype});
  copy_(x, tensor(values, shape));
  return x.set_requires_grad();
}

}  // namespace

TEST_CASE("flatten_parameters lays values and gradients in reverse order", "[quick]") {
  const Tensor a = leaf({2, 3}, 10);
  const Tensor b = leaf({17}, 100);
  const Tensor c = leaf({}, 5);
  const Tensor handle = b;
  a.set_grad(full({2, 3}, 7));
  flatten_parameters({a, b, c});

  const auto ranges = arena_ranges({a, b, c});
  REQUIRE(ranges.size() == 1);
  REQUIRE(ranges[0].parameters == std::vector<int>{2, 1, 0});
  REQUIRE(ranges[0].offsets == std::vector<int64_t>{0, 16, 48});
  REQUIRE(ranges[0].values.shape() == Shape{54});
  std::vector<float> values(54);
  std::vector<float> grads(54);
  values[0] = 5;
  for (int i = 0; i < 17; ++i) values[16 + i] = static_cast<float>(100 + i);
  for (int i = 0; i < 6; ++i) {
    values[48 + i] = static_cast<float>(10 + i);
    grads[48 + i] = 7;
  }
  REQUIRE(to_vector<float>(ranges[0].values) == values);
  REQUIRE(to_vector<float>(ranges[0].grads) == grads);

  REQUIRE(handle.shares_memory_with(ranges[0].values));
  REQUIRE(handle.requires_grad());
  fill_(ranges[0].values, 1);
  REQUIRE(to_vector<float>(handle) == std::vector<float>(17, 1));
}

TEST_CASE("flatten_parameters does nothing the second time, unless the memory is the caller's",
          "[quick]") {
  const Tensor a = leaf({20}, 0);
  const Tensor b = leaf({3}, 50);
  flatten_parameters({a, b});
  const void* values = a.raw_data();
  const void* grads = a.grad().raw_data();
  flatten_parameters({a, b});
  REQUIRE(a.raw_data() == values);
  REQUIRE(a.grad().raw_data() == grads);

  Tensor mine;
  flatten_parameters(
      {a, b}, [&](int64_t numel, TensorOptions options) { return mine = zeros({numel}, options); });
  REQUIRE(mine.shape() == Shape{16 + 32});
  REQUIRE(a.grad().shares_memory_with(mine));
  REQUIRE(to_vector<float>(b) == std::vector<float>{50, 51, 52});
}

TEST_CASE("one arena per dtype", "[quick]") {
  const Tensor a = leaf({2}, 0);
  const Tensor b = leaf({2}, 1, DType::Float64);
  const Tensor c = leaf({2}, 2);
  flatten_parameters({a, b, c});
  const auto ranges = arena_ranges({a, b, c});
  REQUIRE(ranges.size() == 2);
  for (const auto& range : ranges) {
    const bool is_double = range.values.dtype() == DType::Float64;
    REQUIRE(range.parameters == (is_double ? std::vector<int>{1} : std::vector<int>{2, 0}));
  }
}

TEST_CASE("different parameters in one memory are refused", "[quick]") {
  const Tensor a = leaf({2, 3}, 0);
  const Tensor b = leaf({3}, 10);
  const Tensor tied = leaf({2, 3}, 20);
  tied.set_data(a);
  require_error<Error>("flatten_parameters: parameters ", [&] {
    flatten_parameters({a, b, tied});
  });
  require_error<Error>("register the same tensor in both modules", [&] {
    flatten_parameters({tied, a});
  });
  CHECK(a.shares_memory_with(tied));
  tied.set_data(zeros({2, 3}));
  flatten_parameters({a, b, tied});
  const Tensor overlaps = leaf({3}, 0);  // partly
  overlaps.set_data(a.as_strided({3}, {1}, a.storage_offset() + 4));
  require_error<Error>("are different tensors in the same memory", [&] {
    flatten_parameters({a, overlaps});
  });
}

TEST_CASE("backward writes into the arena", "[quick]") {
  const Tensor a = leaf({2}, 1);
  const Tensor b = leaf({2}, 3);
  flatten_parameters({a, b});
  const auto range = arena_ranges({a, b})[0];
  sum(mul(a, b)).backward();
  sum(mul(a, b)).backward();
  const auto grads = to_vector<float>(range.grads);
  REQUIRE(std::vector<float>(grads.begin(), grads.begin() + 2) == std::vector<float>{2, 4});
  REQUIRE(std::vector<float>(grads.begin() + 16, grads.end()) == std::vector<float>{6, 8});
}

TEST_CASE("ranges end where values or gradients are apart", "[quick]") {
  const Tensor a = leaf({4}, 0);
  const Tensor b = leaf({4}, 10);
  const Tensor c = leaf({4}, 20);
  const Tensor empty_one = leaf({0}, 0);
  REQUIRE(arena_ranges({a, b}).size() == 2);  // never flattened

  flatten_parameters({a, empty_one, b, c});
  REQUIRE(arena_ranges({a, empty_one, b, c}).size() == 1);
  REQUIRE(arena_ranges({a, b}).size() == 1);
  REQUIRE(arena_ranges({a, c}).size() == 2);
  b.set_grad(full({4}, 3));
  REQUIRE(arena_ranges({a, b, c}).size() == 3);
  flatten_parameters({a, b, c});
  REQUIRE(arena_ranges({a, b, c}).size() == 1);
  REQUIRE(to_vector<float>(b.grad()) == std::vector<float>(4, 3));
  REQUIRE(to_vector<float>(b) == std::vector<float>{10, 11, 12, 13});
}

TEST_CASE("missing gradients become zeros, and strided tensors contiguous", "[quick]") {
  const Tensor x = leaf({2, 3}, 0);
  const Tensor p = x.as_strided({3, 2}, {1, 3}, 0).set_requires_grad();
  p.set_grad(tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3}).as_strided({3, 2}, {1, 3}, 0));
  const auto ranges = arena_ranges({p, leaf({1}, 9)});
  const size_t own = ranges[0].parameters[0] == 0 ? 0 : 1;
  REQUIRE(to_vector<float>(ranges[own].values) == std::vector<float>{0, 3, 1, 4, 2, 5});
  REQUIRE(to_vector<float>(ranges[own].grads) == std::vector<float>{1, 4, 2, 5, 3, 6});
  REQUIRE(to_vector<float>(ranges[1 - own].grads) == std::vector<float>{0});
}

}  // namespace ringgrad::test::arena_test
