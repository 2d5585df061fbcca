// Numbers of 16 bits on the CPU, which its loops take as vectors: the conversions are those of one
// number, for every number; sums round once.
#include <bit>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::sixteen_bits_test {

namespace {

template <class T>
Tensor all_numbers() {
  const Tensor x = empty({1 << 16}, {.dtype = dtype_of<T>});
  for (int bits = 0; bits < 1 << 16; ++bits) x.data<T>()[bits].bits = static_cast<uint16_t>(bits);
  return x;
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

template <class T>
void check_conversions() {
  const Tensor halves = all_numbers<T>();
  const Tensor wide = to(halves, DType::Float32);
  for (int i = 0; i < 1 << 16; ++i)
    if (!same(wide.data<float>()[i], halves.data<T>()[i]))
      FAIL(dtype_of<T> << " of bits " << i << " widens otherwise");

  // Each number; halfway to the next one, and just before and behind that; subnormal, infinite and
  // NaN among them.
  for (const uint32_t apart : {0u, 0xfffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u}) {
    const Tensor floats = empty_like(wide);
    for (int i = 0; i < 1 << 16; ++i)
      floats.data<float>()[i] =
          std::bit_cast<float>(std::bit_cast<uint32_t>(wide.data<float>()[i]) + apart);
    const Tensor narrow = to(floats, dtype_of<T>);
    for (int i = 0; i < 1 << 16; ++i) {
      const float from = floats.data<float>()[i];
      if (!same(narrow.data<T>()[i], T(from)))
        FAIL(dtype_of<T> << " of " << std::hexfloat << from << " rounds otherwise");
    }
  }
}

}  // namespace

TEST_CASE("vectors convert as single numbers do", "[quick][cpu]") {
  check_conversions<bfloat16>();
  check_conversions<float16>();
}

TEST_CASE("elementwise functions give what single numbers give, whatever the strides",
          "[quick][cpu]") {
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const Tensor x = to(randn({70, 90}), dtype);
    const Tensor y = to(randn({90}), dtype);
    const auto check = [&](const Tensor& a, const Tensor& b) {
      const Tensor got = a * b;
      const Tensor both = expand(b, a.shape());
      REQUIRE(got.dtype() == dtype);
      const auto left = to_vector<float>(a);
      const auto right = to_vector<float>(both);
      const auto product = to_vector<float>(got);
      for (size_t i = 0; i < product.size(); ++i) {
        const float exact = left[i] * right[i];
        const float rounded =
            dtype == DType::BFloat16 ? float(bfloat16(exact)) : float(float16(exact));
        REQUIRE(product[i] == rounded);
      }
    };
    check(x, x);
    check(x, y);
    check(x, slice(x, 1, 3, 4));
    check(transpose(x, 0, 1), transpose(x, 0, 1));
    check(transpose(x, 0, 1), slice(y, 0, 5, 75));
  }
}

TEST_CASE("a transposed copy moves every number of 16 or 32 bits", "[quick][cpu]") {
  for (const DType dtype : {DType::BFloat16, DType::Float16, DType::Float32}) {
    const Tensor x = to(randn({3, 37, 50}), dtype);
    const Tensor y = contiguous(permute(x, {2, 0, 1}));
    const auto from = to_vector<float>(x);
    const auto to = to_vector<float>(y);
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 37; ++j)
        for (int64_t k = 0; k < 50; ++k)
          REQUIRE(to[(k * 3 + i) * 37 + j] == from[(i * 37 + j) * 50 + k]);
  }
}

// 1 + 2^-9 + 2^-8 is next to 1 + 2^-7; rounded after each addition it would be 1. Rows that nothing
// names stay.
TEST_CASE("rows of bfloat16 that one index names several times are added and rounded once",
          "[quick][cpu]") {
  const int64_t columns = 530;
  const Tensor x = to(full({4, columns}, 1), DType::BFloat16);
  const Tensor values = to(tensor(std::vector<double>{0x1p-9, 5, 0x1p-8}, {3, 1}) +
                               zeros({3, columns}, {.dtype = DType::Float64}),
                           DType::BFloat16);
  const auto sums =
      to_vector<float>(index_add(x, 0, tensor(std::vector<int64_t>{2, 0, 2}), values));
  for (int64_t i = 0; i < columns; ++i) {
    REQUIRE(sums[i] == 6);
    REQUIRE(sums[columns + i] == 1);
    REQUIRE(sums[2 * columns + i] == 1 + 0x1p-7f);
    REQUIRE(sums[3 * columns + i] == 1);
  }
}

}  // namespace ringgrad::test::sixteen_bits_test
