// Random integers and draws by weight: each number has the right probability, whatever the range.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"

namespace ringgrad::test::random_integers_test {

namespace {

constexpr int64_t kSeed = 0x123456789abcdef;

// Computes Lemire's method as in the paper, with words from the library's Philox. Other tests
// compare those with known vectors.
int64_t expected(int64_t low, uint64_t range, int64_t i) {
  __extension__ using Wide = unsigned __int128;
  for (uint64_t lane = 0;; ++lane) {
    const PhiloxBlock block = philox(kSeed, static_cast<uint64_t>(i / 2), lane);
    const uint64_t word = block.word[i % 2 * 2] | static_cast<uint64_t>(block.word[i % 2 * 2 + 1])
                                                      << 32;
    const Wide product = static_cast<Wide>(word) * range;
    const uint64_t threshold = static_cast<uint64_t>((static_cast<Wide>(1) << 64) % range);
    if (static_cast<uint64_t>(product) < threshold) continue;
    return static_cast<int64_t>(static_cast<uint64_t>(low) + static_cast<uint64_t>(product >> 64));
  }
}

void check_stream(Device device) {
  const std::pair<int64_t, int64_t> ranges[] = {{0, 1},
                                                {-3, 5},
                                                {0, 1281167},
                                                {0, 10'000'000},
                                                {INT64_MIN, INT64_MAX},
                                                {-1, INT64_MAX},
                                                {INT64_MAX - 1, INT64_MAX}};
  for (const auto& [low, high] : ranges) {
    INFO(low << " to " << high);
    default_generator(device).set_state(kSeed, 0);
    const std::vector<int64_t> drawn =
        to_vector<int64_t>(randint(low, high, {3, 67}, {DType::Int64, device}));
    std::vector<int64_t> wanted;
    for (int64_t i = 0; i < 201; ++i)
      wanted.push_back(expected(low, static_cast<uint64_t>(high) - static_cast<uint64_t>(low), i));
    CHECK(drawn == wanted);
    CHECK(default_generator(device).state()[1].item<int64_t>() == 101);
  }
}

// Returns the sum over the classes of (drawn - expected)² / expected, in standard deviations from
// its mean (Wilson & Hilferty).
double chi_square(const std::vector<double>& drawn, const std::vector<double>& wanted) {
  double sum = 0;
  double freedom = -1;
  for (size_t i = 0; i < drawn.size(); ++i) {
    sum += (drawn[i] - wanted[i]) * (drawn[i] - wanted[i]) / wanted[i];
    ++freedom;
  }
  return (std::cbrt(sum / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
}

}  // namespace

TEST_CASE("random integers are the ones of the definition", "[quick]") { check_stream({}); }
TEST_CASE("random integers are the ones of the definition on CUDA", "[cuda]") {
  check_stream({DeviceType::CUDA});
}

TEST_CASE("random integers are uniform in a range beyond 24 bits", "[quick]") {
  // With only 24 random bits, every number of this range would be even.
  manual_seed(1);
  constexpr int64_t kRange = 3 << 23;
  constexpr int64_t kDraws = 200'000;
  const std::vector<int64_t> drawn = to_vector<int64_t>(randint(0, kRange, {kDraws}));
  std::vector<double> last_bits(8);
  std::vector<double> parts(96);
  for (const int64_t number : drawn) {
    ++last_bits[static_cast<size_t>(number % 8)];
    ++parts[static_cast<size_t>(number * 96 / kRange)];
  }
  CHECK(chi_square(last_bits, std::vector<double>(8, kDraws / 8.0)) < 5);
  CHECK(chi_square(parts, std::vector<double>(96, kDraws / 96.0)) < 5);
}

TEST_CASE("random integers are refused where the dtype lacks one of them", "[quick]") {
  CHECK(randint(0, 256, {4}, {.dtype = DType::UInt8}).dtype() == DType::UInt8);
  CHECK(randint(-(1 << 24), 1 << 24, {4}, {.dtype = DType::Float32}).dtype() == DType::Float32);
  require_error<DTypeError>("randint: dtype uint8 cannot hold all numbers from 0 to 256",
                            [] { randint(0, 257, {1}, {.dtype = DType::UInt8}); });
  require_error<DTypeError>("randint: dtype float32 cannot hold all numbers from 0 to 16777217",
                            [] { randint(0, (1 << 24) + 2, {1}, {.dtype = DType::Float32}); });
  require_error<DTypeError>("randint: dtype bool cannot hold all",
                            [] { randint(0, 5, {1}, {.dtype = DType::Bool}); });
}

TEST_CASE("float64 draws have more than 24 random bits", "[quick]") {
  manual_seed(2);
  const Tensor uniform = rand({1000}, {.dtype = DType::Float64});
  const Tensor coarse = to(to(uniform * 0x1p24, DType::Int64), DType::Float64) * 0x1p-24;
  CHECK(sum(uniform == coarse).item<int64_t>() == 0);
  const std::vector<double> normal = to_vector<double>(randn({20'000}, {.dtype = DType::Float64}));
  double square = 0;
  for (const double x : normal) square += x * x;
  CHECK(std::abs(square / 20'000 - 1) < 0.05);  // five standard deviations
}

TEST_CASE("a dropout of fewer than one in 2^24 is not rounded up", "[quick]") {
  // With only 24 random bits, one element in 2^24 would be dropped, whatever the probability. Here
  // that would be two.
  manual_seed(3);
  constexpr int64_t kElements = 1 << 22;
  for (int i = 0; i < 8; ++i)
    CHECK(sum(dropout(ones({kElements}), 1e-12) == 0).item<int64_t>() == 0);
}

TEST_CASE("draws by weights from many classes take little memory", "[quick]") {
  manual_seed(4);
  constexpr int64_t kClasses = 100'000;
  constexpr int64_t kDraws = 60'000;  // a table of draws × classes would have 48 GB
  const Tensor weights =
      reshape(to(arange(8), DType::Float32).expand({kClasses / 8, 8}), {kClasses});
  const std::vector<int64_t> drawn = to_vector<int64_t>(multinomial(weights, kDraws, true));
  std::vector<double> counts(7);
  std::vector<double> wanted(7);
  for (const int64_t place : drawn) {
    REQUIRE(place % 8 != 0);
    ++counts[static_cast<size_t>(place % 8 - 1)];
  }
  for (size_t i = 0; i < 7; ++i) wanted[i] = kDraws * static_cast<double>(i + 1) / 28;
  CHECK(chi_square(counts, wanted) < 5);
}

TEST_CASE("draws by weights at the ends of the range", "[quick]") {
  for (const double scale : {1e308, 1e-308, 5e-324}) {
    const Tensor weights = tensor<double>({0, scale, 0, scale, 0});
    const std::vector<int64_t> drawn = to_vector<int64_t>(multinomial(weights, 1000, true));
    const auto ones = std::count(drawn.begin(), drawn.end(), 1);
    CHECK(ones + std::count(drawn.begin(), drawn.end(), 3) == 1000);
    CHECK(std::abs(static_cast<double>(ones) - 500) < 80);  // five standard deviations
    CHECK(to_vector<int64_t>(multinomial(weights, 2).sort().values) == std::vector<int64_t>{1, 3});
  }
  CHECK(to_vector<int64_t>(multinomial(tensor<float>({2}), 3, true)) == std::vector<int64_t>(3, 0));
}

}  // namespace ringgrad::test::random_integers_test
