// Random numbers on the CPU: the published vectors of Philox, the definition of the stream, and its moments.
#include "core/random.h"
#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

Tensor state_of(int64_t seed, int64_t offset) { return tensor<int64_t>({seed, offset}); }

// Element i of a draw, from the definition in core/random.h.
uint32_t word_of(uint64_t seed, uint64_t offset, int64_t i) { return philox(seed, offset + i / 4).word[i % 4]; }

bool equal_words(const PhiloxBlock& block, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  return block.word[0] == a && block.word[1] == b && block.word[2] == c && block.word[3] == d;
}

}  // namespace

TEST_CASE("philox gives the vectors of its authors", "[quick][cpu]") {  // Random123, kat_vectors, philox 4x32 10
  REQUIRE(equal_words(philox(0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  REQUIRE(
      equal_words(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  REQUIRE(equal_words(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e), 0xd16cfe09, 0x94fdcceb,
                      0x5001e420, 0x24126ea1));
}

TEST_CASE("advance_random_state takes a snapshot and moves on", "[quick][cpu]") {
  const Tensor state = state_of(-5, int64_t{1} << 40), snapshot = empty({2}, {.dtype = DType::Int64});
  kernels::advance_random_state(snapshot, state, 17);
  REQUIRE(to_vector<int64_t>(snapshot) == std::vector<int64_t>{-5, int64_t{1} << 40});
  REQUIRE(to_vector<int64_t>(state) == std::vector<int64_t>{-5, (int64_t{1} << 40) + 17});
}

TEST_CASE("uniform follows the stream exactly", "[quick][cpu]") {
  const uint64_t seed = 0x123456789abcdef, offset = (uint64_t{1} << 32) - 2;  // the counter carries into its upper word
  for (int64_t n : {0, 1, 3, 4, 127, 128, 129, 1000}) {
    const Tensor x = empty({n});
    kernels::uniform(x, state_of(seed, offset), 0, 1);
    std::vector<double> expected(n);
    for (int64_t i = 0; i < n; ++i) expected[i] = (word_of(seed, offset, i) >> 8) * 0x1p-24;
    require_close(x, expected, 0);
  }
  for (DType dtype : kFloating) {
    const Tensor x = empty({300}, {.dtype = dtype});
    kernels::uniform(x, state_of(7, 9), -3, 5);
    std::vector<double> expected(300);
    const int bits = dtype == DType::BFloat16 ? 8 : dtype == DType::Float16 ? 11 : 24;  // of the type's precision
    for (int64_t i = 0; i < 300; ++i) expected[i] = -3 + 8 * std::ldexp(word_of(7, 9, i) >> (32 - bits), -bits);
    require_close(x, expected, 2 * epsilon(dtype));
  }
}

TEST_CASE("normal is Box-Muller on pairs of words", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (int64_t n : {1, 2, 131}) {
      const Tensor x = empty({n}, {.dtype = dtype});
      kernels::normal(x, state_of(3, 11), 2, 0.5);
      std::vector<double> expected(n);
      for (int64_t i = 0; i < n; ++i) {
        const double u = (word_of(3, 11, i & ~int64_t{1}) >> 8) * 0x1p-24, v = (word_of(3, 11, i | 1) >> 8) * 0x1p-24;
        const double radius = std::sqrt(-2 * std::log1p(-u)), angle = 2 * std::acos(-1.0) * v;
        expected[i] = 2 + 0.5 * radius * (i % 2 ? std::sin(angle) : std::cos(angle));
      }
      require_close(x, expected, dtype == DType::Float64 ? 1e-14 : 2 * epsilon(dtype));
    }
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
  const Tensor plain = empty({3, 5}), transposed = empty({5, 3}).as_strided({3, 5}, {1, 3}, 0);
  for (const auto& draw : {uniform_, normal_}) {
    manual_seed(7);
    draw(plain, 0, 1);
    manual_seed(7);
    draw(transposed, 0, 1);
    REQUIRE(values(as_contiguous(transposed)) == values(plain));
  }
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

TEST_CASE("dropout keeps exactly what the stream says", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (double p : {0.0, 0.1, 0.5, 1.0}) {
      const Tensor x = random_tensor({517}, dtype, 1, 1, 2), y = empty({517}, {.dtype = dtype});
      kernels::dropout(y, x, state_of(5, 6), p);
      std::vector<double> expected = values(x);
      for (int64_t i = 0; i < 517; ++i) expected[i] = uniform_from(word_of(5, 6, i)) >= p ? expected[i] / (1 - p) : 0;
      require_close(y, expected, 2 * epsilon(dtype));
    }
}

TEST_CASE("random numbers do not depend on the number of threads", "[quick][threads][cpu]") {
  require_same_on_any_threads([&] {
    const Tensor x = empty({100001}), y = empty({100001}), z = empty({100001});
    kernels::uniform(x, state_of(1, 2), -1, 1);
    kernels::normal(y, state_of(3, 4), 0, 1);
    kernels::dropout(z, x, state_of(5, 6), 0.3);
    return std::vector<Tensor>{x, y, z};
  });
}
