// Random numbers on the CPU: the published vectors of Philox, and the moments. The rows of
// tests/kernels/op_specs_random.cpp compare every number with the definition.
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/random.h"

#include "ringgrad/core/error.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test::cpu_random_test {

namespace {

Tensor state_of(int64_t seed, int64_t offset) { return tensor<int64_t>({seed, offset}); }

bool equal_words(const PhiloxBlock& block, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return block.word[0] == a && block.word[1] == b && block.word[2] == c && block.word[3] == d;
}

}  // namespace

// Random123, kat_vectors, philox 4x32 10.
TEST_CASE("philox gives the vectors of its authors", "[quick][cpu]") {
  REQUIRE(equal_words(philox(0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  REQUIRE(equal_words(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}), 0x408f276d, 0x41c83b0e,
                      0xa20bc7c6, 0x6d5451fd));
  REQUIRE(equal_words(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
                      0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST_CASE("uniform stays below its upper end in every dtype", "[quick][cpu]") {
  for (DType dtype : kFloating) {
    const Tensor x = empty({1 << 18}, {.dtype = dtype});
    kernels::uniform(x, state_of(4, 0), 0, 1);
    const std::vector<double> all = values(x);
    REQUIRE(*std::max_element(all.begin(), all.end()) < 1);
    REQUIRE(*std::max_element(all.begin(), all.end()) > 0.99);
  }
}

TEST_CASE("random numbers fill a tensor in row-major order, whatever its strides", "[quick][cpu]") {
  const Tensor plain = empty({3, 5});
  const Tensor transposed = empty({5, 3}).as_strided({3, 5}, {1, 3}, 0);
  for (const auto& draw : {uniform_, normal_}) {
    manual_seed(7);
    draw(plain, 0, 1);
    manual_seed(7);
    draw(transposed, 0, 1);
    REQUIRE(values(as_contiguous(transposed)) == values(plain));
  }
}

TEST_CASE("bounds and deviations that make no sense are refused", "[quick][cpu]") {
  const Tensor x = empty({2});
  require_error<Error>("uniform_: the bounds are 1 and 0, expected finite numbers",
                       [&] { uniform_(x, 1, 0); });
  require_error<Error>("uniform_: the bounds are 0 and inf", [&] { uniform_(x, 0, INFINITY); });
  require_error<Error>("uniform_: the bounds are nan and 1", [&] { uniform_(x, NAN, 1); });
  require_error<Error>("expected finite numbers at a finite distance",
                       [&] { uniform_(x, -1e308, 1e308); });
  require_error<Error>("normal_: the mean is 0 and the deviation -1", [&] { normal_(x, 0, -1); });
  require_error<Error>("normal_: the mean is inf and the deviation 1",
                       [&] { normal_(x, INFINITY, 1); });
  uniform_(x, 3, 3);
  REQUIRE(values(x) == std::vector<double>{3, 3});
  normal_(x, 4, 0);
  REQUIRE(values(x) == std::vector<double>{4, 4});
}

TEST_CASE("uniform, normal and dropout have the moments they should", "[quick][cpu]") {
  const int64_t n = 200000;
  const Tensor x = empty({n});
  const auto moment = [&](int power) {
    double sum = 0;
    for (double value : values(x)) sum += std::pow(value, power);
    return sum / n;
  };
  kernels::uniform(x, state_of(1, 0), 0, 1);
  REQUIRE(std::abs(moment(1) - 0.5) < 0.004);  // six standard errors
  REQUIRE(std::abs(moment(2) - 1.0 / 3) < 0.004);
  kernels::normal(x, state_of(2, 0), 0, 1);
  REQUIRE(std::abs(moment(1)) < 0.014);
  REQUIRE(std::abs(moment(2) - 1) < 0.02);
  REQUIRE(std::abs(moment(4) - 3) < 0.14);
  kernels::dropout(x, ones({n}), state_of(3, 0), 0.25);
  REQUIRE(std::abs(moment(1) - 1) < 0.008);
}

}  // namespace ringgrad::test::cpu_random_test
