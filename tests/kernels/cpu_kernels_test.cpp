// Tests of CPU kernels that the rows of tests/kernels/op_specs*.cpp do not reach: the vector
// functions, matrices of several tiles, and sums that a simpler kernel would get wrong.
#include <limits>
#include <random>

#include "ringgrad/core/cpu/vector_math.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/conv_plan.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test::cpu_kernels_test {

// Tests numbers from `first` to `last`, each `ratio` times the one before.
void require_within_ulps(double ulps, float (*function)(float), double (*exact)(double),
                         float first, float last, float ratio = 1.00037f) {
  for (float x = first; std::abs(x) < std::abs(last); x *= ratio) {
    const double expected = exact(x);
    const double ulp = std::exp2(std::max(-126.0, std::floor(std::log2(std::abs(expected)))) - 23);
    INFO("x = " << x);
    REQUIRE(std::abs(function(x) - expected) <= ulps * ulp);
  }
}

TEST_CASE("exponentials and logarithms are within one or two units in the last place",
          "[quick][cpu]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  require_within_ulps(1.1, cpu::fast_exp, std::exp, -1e-8f, -87);
  require_within_ulps(1.1, cpu::fast_exp, std::exp, 1e-8f, 88.7f);
  REQUIRE(cpu::fast_exp(0.0f) == 1);
  REQUIRE(cpu::fast_exp(1000.0f) == kInfinity);
  REQUIRE(cpu::fast_exp(-1000.0f) == 0);
  REQUIRE(std::abs(cpu::fast_exp(-95.0f) - std::exp(-95.0)) <= 0x1p-149);  // subnormal
  REQUIRE(std::isnan(cpu::fast_exp(kNaN)));

  require_within_ulps(1.6, cpu::fast_expm1, std::expm1, -1e-20f, -100);
  require_within_ulps(1.6, cpu::fast_expm1, std::expm1, 1e-20f, 88);
  REQUIRE(cpu::fast_expm1(-kInfinity) == -1);
  REQUIRE(std::isnan(cpu::fast_expm1(kNaN)));

  require_within_ulps(0.9, cpu::fast_log, std::log, 1e-42f, 3e38f, 1.0037f);
  require_within_ulps(0.9, cpu::fast_log, std::log, 0.9f, 1.1f, 1.0000037f);
  require_within_ulps(1.5, cpu::fast_log1p, std::log1p, 1e-40f, 3e38f, 1.0037f);
  require_within_ulps(1.5, cpu::fast_log1p, std::log1p, -1e-40f, -0.99999f);
  for (float (*function)(float) : {static_cast<float (*)(float)>(cpu::fast_log),
                                   +[](float x) { return cpu::fast_log1p(x - 1); }}) {
    REQUIRE(function(1.0f) == 0);
    REQUIRE(function(0.0f) == -kInfinity);
    REQUIRE(function(kInfinity) == kInfinity);
    REQUIRE(std::isnan(function(-1.0f)));
    REQUIRE(std::isnan(function(-kInfinity)));
    REQUIRE(std::isnan(function(kNaN)));
  }
}

TEST_CASE("sines are rounded once, near their zeros too", "[quick][cpu]") {
  for (const float sign : {1.0f, -1.0f}) {
    require_within_ulps(0.51, cpu::fast_sin, std::sin, sign * 1e-40f, cpu::kMostAngle);
    require_within_ulps(0.51, cpu::fast_cos, std::cos, sign * 1e-40f, cpu::kMostAngle);
    for (float n = 1; n < 0x1p23f; n += 1 + std::floor(n / 512)) {
      const auto x = static_cast<float>(sign * n * std::acos(0.0));
      require_within_ulps(0.51, cpu::fast_sin, std::sin, x, 1.0000001f * x, 2);
      require_within_ulps(0.51, cpu::fast_cos, std::cos, x, 1.0000001f * x, 2);
    }
  }
  REQUIRE(cpu::fast_cos(0.0f) == 1);
  REQUIRE(std::signbit(cpu::fast_sin(-0.0f)));
  REQUIRE(std::isnan(cpu::fast_sin(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("a tensor may have angles beyond those of the vector loop", "[quick][cpu]") {
  std::vector<float> angles(700, 1.25f);
  for (const float large :
       {0.0f, 0x1.8p24f, -1e30f, 3e38f, std::numeric_limits<float>::infinity()}) {
    angles[650] = large;
    for (const int64_t stride : {1, 2}) {
      const int64_t n = 700 / stride;
      const Tensor x = tensor(angles, {700}).as_strided({n}, {stride}, 0);
      const Tensor dy = full({n}, -1);
      const Tensor y = empty({n});
      std::vector<double> sines;
      std::vector<double> cosines;
      std::vector<double> bounds(static_cast<size_t>(n), 0x1p-23);
      for (const double angle : values(x)) {
        sines.push_back(std::sin(angle));
        cosines.push_back(std::cos(angle));
      }
      if (std::isinf(large)) {
        kernels::cos(y, x);
        REQUIRE(std::isnan(values(y)[static_cast<size_t>(650 / stride)]));
        continue;
      }
      kernels::sin(y, x);
      require_within(y, sines, bounds);
      kernels::cos_backward(y, dy, x);
      require_within(y, sines, bounds);
      kernels::cos(y, x);
      require_within(y, cosines, bounds);
      kernels::sin_backward(y, full({n}, 1), x);
      require_within(y, cosines, bounds);
    }
  }
}

// The powers e^(x - max) are off by 40 roundings of their exponents, which are at most 40, and by
// two roundings of their own. Their sum is off by a rounding for each power, its logarithm by 2,
// and the last subtraction by 40.
TEST_CASE("cross entropy of many rows, short and long ones", "[quick][cpu]") {
  for (const int64_t classes : {1, 3, 10, 31, 32, 100}) {
    constexpr int64_t kRows = 131;
    const Tensor x = random_tensor({kRows, classes}, DType::Float32, 7, -20, 20);
    const Tensor y = empty({kRows, classes});
    const Tensor target = full({kRows}, classes - 1, {.dtype = DType::Int64});
    const Tensor loss = empty({kRows});
    const Tensor weight = empty({kRows});
    const Tensor log_sum_exp = empty({kRows, 2});
    const std::vector<double> v = values(x);
    std::vector<double> expected;
    for (int64_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += std::exp(v[r * classes + c]);
      expected.push_back(std::log(sum) - v[(r + 1) * classes - 1]);
    }
    kernels::cross_entropy(loss, weight, log_sum_exp, x, target, {}, {});
    require_within(loss, expected,
                   std::vector<double>(kRows, static_cast<double>(classes + 84) * 0x1p-24));

    for (int64_t r = 0; r < kRows; ++r)
      x.data<float>()[r * classes + r % classes] = std::numeric_limits<float>::quiet_NaN();
    kernels::cross_entropy(loss, weight, log_sum_exp, x, target, {}, {});
    kernels::softmax(y, x);
    for (const double value : values(loss)) REQUIRE(std::isnan(value));
    for (const double value : values(y)) REQUIRE(std::isnan(value));
  }
}

TEST_CASE("statistics of the columns of a matrix", "[quick][cpu]") {
  constexpr int64_t kRows = 1075;
  constexpr int64_t kColumns = 37;
  const Tensor x = random_tensor({kRows, kColumns}, DType::Float32, 3, 0, 1);
  const Tensor mean = empty({kColumns});
  const Tensor var = empty({kColumns});
  kernels::batch_norm_stats(mean, var, x);
  const std::vector<double> v = values(x);
  std::vector<double> means(kColumns);
  std::vector<double> vars(kColumns);
  for (int64_t i = 0; i < kRows * kColumns; ++i) means[i % kColumns] += v[i] / kRows;
  for (int64_t i = 0; i < kRows * kColumns; ++i)
    vars[i % kColumns] += std::pow(v[i] - means[i % kColumns], 2) / kRows;
  require_within(mean, means, std::vector<double>(kColumns, gamma_of(kRows, DType::Float32)));
  require_within(var, vars, std::vector<double>(kColumns, gamma_of(kRows, DType::Float32)));
}

// 23 channels are two blocks, of which one has padding; a row of 35 × 9 pixels is several pieces.
TEST_CASE("batch norm's backward takes a bit for each output in its place", "[quick][cpu]") {
  const DType dtype = GENERATE(DType::Float32, DType::BFloat16);
  const bool with_residual = GENERATE(false, true);
  const Shape shape = {3, 23, 35, 9};
  const auto image = [&](uint64_t seed) {
    const Tensor t = empty(shape, {.dtype = dtype, .layout = Layout::ChannelBlocked});
    kernels::copy(t, random_tensor(shape, DType::Float32, seed, -1, 1));
    return t;
  };
  const Tensor x = image(1);
  const Tensor dy = image(2);
  const Tensor residual = with_residual ? image(3) : Tensor();
  const Tensor y = empty_like(x);
  const Tensor mean = empty({23});
  const Tensor var = ones({23});
  const Tensor weight = random_tensor({23}, DType::Float32, 4, -1, 1);
  kernels::fill(mean, 0.1);
  const Tensor positive = layout_policy(x.device()).batch_norm_positive(x);
  kernels::batch_norm_apply(y, positive, x, mean, var, weight, {}, residual, 1e-5, true);
  const auto backward = [&](const Tensor& gate) {
    std::vector<Tensor> made{empty({23}), empty({23}), empty_like(x),
                             with_residual ? empty_like(x) : Tensor()};
    kernels::batch_norm_backward_reduce(made[0], made[1], dy, x, gate, mean, var, 1e-5);
    kernels::batch_norm_backward_apply(made[2], made[3], dy, x, gate, mean, var, weight, made[0],
                                       made[1], 1e-5, 945);
    return made;
  };
  const std::vector<Tensor> by_output = backward(y);
  const std::vector<Tensor> by_bits = backward(positive);
  for (size_t i = 0; i < by_bits.size(); ++i)
    if (by_bits[i]) REQUIRE(values(by_bits[i]) == values(by_output[i]));

  // The vendor's kernels have no such bits.
  const ProviderGuard vendor(Provider::Vendor);
  REQUIRE(!layout_policy(x.device()).batch_norm_positive(x));
  const Tensor sum_dy = empty({23});
  const Tensor sum_dy_xhat = empty({23});
  const Tensor dx = empty_like(x);
  const Tensor dresidual = with_residual ? empty_like(x) : Tensor();
  kernels::batch_norm_backward(sum_dy, sum_dy_xhat, dx, dresidual, dy, x, positive, mean, var,
                               weight, 1e-5);
  REQUIRE(values(dx) == values(by_bits[2]));
}

// e^(-x²/2) has x²/2 times the relative error of its exponent.
TEST_CASE("fast_normal keeps its digits far below 0", "[quick][cpu]") {
  for (float x = -12.8f; x < 12.8f; x += 0.00137f) {
    const Normal<float> normal = cpu::fast_normal(x);
    const double d = x;
    const double below = std::erfc(-d * kSqrtHalf) / 2;
    const double density = kInverseSqrtTwoPi * std::exp(-d * d / 2);
    const double bound = (4 + d * d / 2) * 0x1p-23;
    REQUIRE(std::abs(normal.below - below) <= bound * std::min(below, 0.5));
    REQUIRE(std::abs(normal.density - density) <= bound * density);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  REQUIRE(cpu::fast_normal(0.0f).below == Approx(0.5f));
  REQUIRE(cpu::fast_normal(kInfinity).below == 1);
  REQUIRE(cpu::fast_normal(-kInfinity).below == 0);
  REQUIRE(cpu::fast_normal(kInfinity).density == 0);
  REQUIRE(std::isnan(cpu::fast_normal(std::numeric_limits<float>::quiet_NaN()).below));
}

// There are two kinds of numbers. Sums of whole numbers are exact in any order, so one wrong term
// shows among any number of terms. Sums of fractions are as exact as float32 allows.
TEST_CASE("matmul of several tiles", "[quick][cpu]") {
  const bool whole = GENERATE(true, false);
  for (const Shape& bmnk : {Shape{1, 200, 150, 900}, {2, 37, 61, 5000}}) {
    const int64_t batches = bmnk[0];
    const int64_t m = bmnk[1];
    const int64_t n = bmnk[2];
    const int64_t k = bmnk[3];
    const auto random = [&](const Shape& shape, uint32_t seed) {
      const Tensor x = random_tensor(shape, DType::Float32, seed, -8, 8);
      if (!whole) return x;
      std::vector<double> elements = values(x);
      for (double& element : elements) element = std::round(element);
      return tensor<float>(std::vector<float>(elements.begin(), elements.end()), shape);
    };
    const Tensor a = random({batches, m, k}, 1);
    const Tensor b = random({batches, k, n}, 2);
    const Tensor bias = random({n}, 3);
    const Tensor c = empty({batches, m, n});
    kernels::matmul(c, a, b, bias);
    const std::vector<double> va = values(a);
    const std::vector<double> vb = values(b);
    const std::vector<double> shift = values(bias);
    std::vector<double> expected(c.numel());
    std::vector<double> magnitudes(c.numel());
    for (int64_t i = 0; i < batches * m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double& sum = expected[i * n + j] = shift[j];
        double& magnitude = magnitudes[i * n + j] = std::abs(shift[j]);
        for (int64_t l = 0; l < k; ++l) {
          const double term = va[i * k + l] * vb[(i / m * k + l) * n + j];
          sum += term;
          magnitude += std::abs(term);
        }
      }
    if (whole)
      require_within(c, expected, std::vector<double>(expected.size(), 0));  // below 2^24
    else
      require_within(c, expected, sum_bounds(DType::Float32, k + 1, magnitudes));
  }
}

TEST_CASE("sum of float32 does not lose small terms", "[quick][cpu]") {
  // A running float32 sum would stop growing at 2^24.
  const Tensor x = ones({(int64_t{1} << 24) + 1001});
  const Tensor y = empty({1}, {.dtype = DType::Float32});
  kernels::sum(y, x, 1);
  require_close(y, {static_cast<double>(x.numel())}, 0x1p-24);
}

TEST_CASE("the sum of channel-blocked memory is that of any other", "[quick][cpu]") {
  for (int64_t channels : {1, 16, 21}) {
    const Tensor plain = random_tensor({3, channels, 4, 5}, DType::Float32, 10);
    const Tensor blocked = empty(plain.shape(), {.layout = Layout::ChannelBlocked});
    kernels::copy(blocked, plain);
    const Tensor magnitude = absolute(plain);
    for (const Shape& kept :
         {Shape{1, channels, 1, 1}, {3, 1, 4, 5}, {3, channels, 1, 1}, {1, 1, 1, 1}}) {
      const Tensor y = empty(kept);
      const Tensor expected = empty(kept);
      kernels::sum(y, blocked, 2);
      kernels::sum(expected, plain, 2);
      const Tensor magnitudes = empty(kept);
      kernels::sum(magnitudes, magnitude, 2);
      require_within(y, values(expected),
                     sum_bounds(DType::Float32, 2 * plain.numel(), values(magnitudes)));
    }
  }
}

// Rows of all lengths on either side of those that are copied, or computed, in another way.
TEST_CASE("rows that are short, and repeated, have the elements of any others", "[quick][cpu]") {
  const auto dtype =
      GENERATE(DType::Float32, DType::Float64, DType::BFloat16, DType::UInt8, DType::Bool);
  const auto whole = [dtype](const Shape& shape) {
    std::vector<double> numbers(shape.numel());
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<double>(i * 7 % 13 % 2 + (dtype != DType::Bool ? i * 7 % 13 : 0));
    const Tensor x = empty(shape, {.dtype = dtype});
    kernels::copy(x, tensor(numbers, shape));
    return x;
  };
  for (const int64_t row :
       {1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 513, 4095, 4097}) {
    CAPTURE(dtype, row);
    const int64_t rows = 40000 / row;
    const Tensor wide = whole({rows, row + 3});
    const Tensor part = wide.as_strided({rows, row}, {row + 3, 1}, 2);
    const Tensor into = whole({rows, row + 1});
    const std::vector<double> before = values(into);
    kernels::copy(into.as_strided({rows, row}, {row + 1, 1}, 1), part);
    const std::vector<double> source = values(wide);
    std::vector<double> want = before;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < row; ++j) want[i * (row + 1) + 1 + j] = source[i * (row + 3) + 2 + j];
    REQUIRE(values(into) == want);

    if (dtype == DType::Bool) continue;
    const Tensor x = whole({rows, row});
    const Tensor one = whole({row});
    const Tensor y = empty({rows, row}, {.dtype = dtype});
    kernels::add(y, x, one.as_strided({rows, row}, {0, 1}, 0));
    const std::vector<double> a = values(x);
    const std::vector<double> b = values(one);
    std::vector<double> sums(a.size());
    for (size_t i = 0; i < a.size(); ++i) sums[i] = a[i] + b[i % row];
    REQUIRE(values(y) == sums);
  }
}

TEST_CASE("the largest of rows of any length is where it is first, a NaN before all",
          "[quick][cpu]") {
  std::mt19937 generator(3);
  for (int64_t n = 1; n < 1300; n += n < 300 ? 1 : 97) {
    const bool with_nan = n % 3 == 0;
    std::vector<float> numbers(n);
    for (float& number : numbers) number = static_cast<float>(generator() % 50);
    if (with_nan)
      for (int i = 0; i < 2; ++i) numbers[generator() % n] = NAN;
    int64_t best = 0;
    for (int64_t i = 1; i < n; ++i)
      if (!std::isnan(numbers[best]) && (std::isnan(numbers[i]) || numbers[i] > numbers[best]))
        best = i;
    CAPTURE(n, best);
    const Tensor y = empty({1, 1});
    const Tensor index = empty({1, 1}, {.dtype = DType::Int64});
    kernels::max(y, index, tensor(numbers, {1, n, 1}));
    REQUIRE(*index.data<int64_t>() == best);
    REQUIRE((*y.data<float>() == numbers[best] || with_nan));
  }
}

}  // namespace ringgrad::test::cpu_kernels_test
