// Matrix products of bfloat16 numbers, on tiles and in pairs, against sums in double precision; the
// processor's tiles, where it has some, give the emulated ones' bits.
#include "ringgrad/core/cpu/amx/matmul.h"

#include <random>

#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/packed_product.h"
#include "ringgrad/core/cpu/workspace.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::tile_matmul_test {

namespace {

// A tensor of this shape whose elements lie as `order` says: the dimension with the largest stride
// first.
Tensor noise(const Shape& shape, const std::vector<int>& order, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Strides strides = {0, 0, 0};
  int64_t numbers = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    strides[*d] = numbers;
    numbers *= shape[*d];
  }
  std::vector<double> values(static_cast<size_t>(numbers));
  for (double& value : values) value = normal(random);
  return in_dtype(tensor(values), DType::BFloat16).as_strided(shape, strides, 0);
}

std::vector<double> product(const Tensor& a, const Tensor& b, const Tensor& bias) {
  const auto x = to_vector<double>(a);
  const auto y = to_vector<double>(b);
  const auto shift = bias ? to_vector<double>(bias) : std::vector<double>(b.size(2));
  const int64_t m = a.size(1);
  const int64_t terms = a.size(2);
  const int64_t n = b.size(2);
  std::vector<double> c(static_cast<size_t>(a.size(0) * m * n));
  for (int64_t i = 0; i < a.size(0) * m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = shift[j];
      for (int64_t k = 0; k < terms; ++k) sum += x[i * terms + k] * y[(i / m * terms + k) * n + j];
      c[i * n + j] = sum;
    }
  return c;
}

Tensor on_tiles(amx::Tiles tiles, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const amx::Tiles before = amx::tiles();
  amx::use_tiles(tiles);
  const Tensor c = full({a.size(0), a.size(1), b.size(2)}, 7, {.dtype = DType::BFloat16});
  amx::matmul(current_stream(Device("cpu")), c, a, b, bias);
  amx::use_tiles(before);
  return c;
}

cpu::Matrix<bfloat16> matrix_of(const Tensor& x, int64_t batch) {
  const bool transposed = x.strides()[2] != 1;
  return {x.data<bfloat16>() + batch * x.strides()[0], x.size(1), x.size(2),
          x.strides()[transposed ? 2 : 1], transposed};
}

Tensor in_pairs(const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(1);
  const int64_t n = b.size(2);
  const Tensor c = full({a.size(0), m, n}, 7);
  const cpu::Workspace<float> memory(current_stream({}), cpu::packed_product_memory());
  for (int64_t i = 0; i < a.size(0); ++i)
    cpu::packed_product({c.data<float>() + i * m * n, m, n, n}, matrix_of(a, i), matrix_of(b, i),
                        false, memory.data());
  return c;
}

void check(const Tensor& a, const Tensor& b, const Tensor& bias) {
  CAPTURE(a.shape(), a.strides(), b.shape(), b.strides());
  if (a.size(2) > 0)
    REQUIRE(difference(in_pairs(a, b), product(a, b, {}), {DType::Float32, a.size(2)}) == "");
  const Tensor c = on_tiles(amx::Tiles::Emulated, a, b, bias);
  REQUIRE(difference(c, product(a, b, bias), {DType::BFloat16}) == "");
  if (amx::why_no_tiles().empty())
    REQUIRE(to_vector<double>(on_tiles(amx::Tiles::Hardware, a, b, bias)) == to_vector<double>(c));
}

}  // namespace

// One number; ends within a tile, a pair, a block, and at them; several units; more terms than go
// by at once; none.
TEST_CASE("matrix products on tiles", "[tile_matmul][quick][threads]") {
  const int64_t sizes[][4] = {{1, 1, 1, 1},     {1, 16, 32, 16}, {2, 17, 33, 15},
                              {1, 32, 31, 48},  {3, 5, 70, 20},  {1, 65, 64, 9},
                              {1, 20, 1030, 8}, {1, 4, 0, 3},    {1, 130, 40, 150}};
  unsigned seed = 0;
  for (const auto& [batches, m, terms, n] : sizes)
    for (const std::vector<int>& left : {std::vector{0, 1, 2}, {0, 2, 1}, {1, 0, 2}})
      for (const std::vector<int>& right : {std::vector{0, 1, 2}, {0, 2, 1}}) {
        const Tensor bias = ++seed % 2 == 0 ? noise({1, 1, n}, {0, 1, 2}, seed) : Tensor();
        check(noise({batches, m, terms}, left, seed), noise({batches, terms, n}, right, seed + 100),
              bias ? bias.as_strided({n}, {1}, 0) : bias);
      }
  if (!amx::why_no_tiles().empty())
    WARN("not tried on the processor's tiles: " << amx::why_no_tiles());
}

TEST_CASE("one matrix for all of a batch, and every second row, on tiles",
          "[tile_matmul][quick][threads]") {
  const Tensor b = noise({1, 40, 20}, {0, 1, 2}, 1);
  const Tensor a = noise({3, 2 * 18, 40}, {0, 1, 2}, 2);
  check(a.as_strided({3, 18, 40}, {36 * 40, 80, 1}, 0), b.as_strided({3, 40, 20}, {0, 20, 1}, 0),
        {});
}

// Rows that begin amid a word, and those that lie whole pages apart.
TEST_CASE("rows of pairs where a tile cannot read them", "[tile_matmul][quick][threads]") {
  const Tensor a = noise({1, 20, 2048}, {0, 1, 2}, 1);
  const Tensor b = noise({1, 300, 33}, {0, 1, 2}, 2);
  for (const int64_t first : {0, 1, 2})
    check(a.as_strided({1, 20, 300}, {0, 2048, 1}, first), b, {});
}

}  // namespace ringgrad::test::tile_matmul_test
