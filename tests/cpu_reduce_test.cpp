// Sums, maxima and minima on the CPU against plain loops in double.
#include <limits>

#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The sum of x into a tensor of shape `kept`, element by element.
std::vector<double> expected_sum(const Tensor& x, const Shape& kept, double scale) {
  const std::vector<double> from = values(x);
  std::vector<double> sums(kept.numel());
  const Strides strides = contiguous_strides(kept);
  for (size_t i = 0; i < from.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), to = 0;
    for (int d = x.dim() - 1; d >= 0; --d) {
      if (kept[d] != 1) to += rest % x.shape()[d] * strides[d];
      rest /= x.shape()[d];
    }
    sums[to] += scale * from[i];
  }
  return sums;
}

void check_sum(const Tensor& x, const Shape& kept, double scale = 1) {
  INFO("sum of " << x.shape() << " with strides " << x.strides() << " to " << kept << ", " << x.dtype());
  const Tensor y = empty(kept, {.dtype = x.dtype()});
  kernels::sum(y, x, scale);
  require_close(y, expected_sum(x, kept, scale), sum_tolerance(x.dtype(), kept.numel() ? x.numel() / kept.numel() : 0));
}

Tensor transposed(const Tensor& x) {  // of a 2-D tensor
  return x.as_strided({x.size(1), x.size(0)}, {x.stride(1), x.stride(0)}, 0);
}

}  // namespace

TEST_CASE("sum over any dimensions", "[quick][cpu]") {
  for (DType dtype : kFloating) {
    const Tensor x = random_tensor({3, 5, 7, 19}, dtype, 1);
    for (int mask = 0; mask < 16; ++mask) {
      Shape kept = x.shape();
      for (int d = 0; d < 4; ++d)
        if (mask >> d & 1) kept[d] = 1;
      check_sum(x, kept, 0.5);
    }
  }
}

TEST_CASE("sum of long rows, long columns and channels", "[quick][cpu]") {
  check_sum(random_tensor({100003}, DType::Float32, 2), {1});
  check_sum(random_tensor({3, 9000}, DType::Float32, 3), {3, 1});
  check_sum(random_tensor({9000, 3}, DType::Float32, 4), {1, 3});
  check_sum(random_tensor({300, 1100}, DType::Float32, 5), {1, 1100});
  check_sum(random_tensor({33, 6, 17, 17}, DType::Float32, 6), {1, 6, 1, 1});
  check_sum(random_tensor({70000}, DType::BFloat16, 7), {1});
}

TEST_CASE("sum of transposed, sliced, expanded and channels-last tensors", "[quick][cpu]") {
  const Tensor x = random_tensor({40, 70}, DType::Float32, 8);
  check_sum(transposed(x), {70, 1});
  check_sum(transposed(x), {1, 40});
  check_sum(x.as_strided({20, 35}, {140, 2}, 1), {20, 1});
  check_sum(x.as_strided({20, 35}, {140, 2}, 1), {1, 35});
  check_sum(x.as_strided({9, 70}, {0, 1}, 0), {1, 70});
  check_sum(x.as_strided({70, 9}, {1, 0}, 0), {70, 1});
  check_sum(x.as_strided({70, 9}, {1, 0}, 0), {1, 1});
  const Tensor nhwc = empty({4, 6, 5, 3}, {.layout = Layout::ChannelsLast});
  kernels::copy(nhwc, random_tensor({4, 6, 5, 3}, DType::Float32, 9));
  for (const Shape& kept : {Shape{1, 6, 1, 1}, {4, 1, 5, 3}, {4, 6, 1, 1}, {1, 1, 1, 1}}) check_sum(nhwc, kept);
}

TEST_CASE("sum of channel-blocked tensors", "[quick][cpu]") {
  for (int64_t channels : {1, 16, 21}) {
    const Tensor plain = random_tensor({3, channels, 4, 5}, DType::Float32, 10);
    const Tensor blocked = empty(plain.shape(), {.layout = Layout::ChannelBlocked});
    kernels::copy(blocked, plain);
    for (const Shape& kept : {Shape{1, channels, 1, 1}, {3, 1, 4, 5}, {3, channels, 1, 1}, {1, 1, 1, 1}}) {
      const Tensor y = empty(kept);
      kernels::sum(y, blocked, 2);
      require_close(y, expected_sum(plain, kept, 2), 1e-5);
    }
  }
}

TEST_CASE("sum of nothing, of one and of integers", "[quick][cpu]") {
  check_sum(random_tensor({0, 3}, DType::Float32, 11), {1, 3});
  check_sum(random_tensor({3, 0}, DType::Float32, 11), {3, 1});
  check_sum(random_tensor({0, 3}, DType::Float32, 11), {0, 1});
  check_sum(random_tensor({}, DType::Float32, 11), {});
  check_sum(random_tensor({1, 1}, DType::Float64, 11), {1, 1});
  for (DType dtype : {DType::Int64, DType::Int32, DType::UInt8}) {
    const Tensor x = random_tensor({6, 9}, dtype, 12, 0, 20), y = empty({6, 1}, {.dtype = dtype});
    kernels::sum(y, x, 1);
    require_close(y, expected_sum(x, {6, 1}, 1), 0);
  }
}

TEST_CASE("sum of float32 does not lose small terms", "[quick][cpu]") {
  // A running float32 sum would stop growing at 2^24.
  const Tensor x = ones({(int64_t{1} << 24) + 1001}), y = empty({1}, {.dtype = DType::Float32});
  kernels::sum(y, x, 1);
  require_close(y, {static_cast<double>(x.numel())}, 0x1p-24);
}

TEST_CASE("sum_squares", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (int64_t n : {0, 1, 15, 70001}) {
      const Tensor x = random_tensor({n}, dtype, 13),
                   y = empty({}, {.dtype = dtype == DType::Float64 ? dtype : DType::Float32});
      double expected = 0;
      for (double value : values(x)) expected += value * value;
      kernels::sum_squares(y, x);
      require_close(y, {expected}, sum_tolerance(dtype, n));
    }
}

TEST_CASE("sums do not depend on the number of threads", "[quick][threads][cpu]") {
  const Tensor x = random_tensor({37, 24, 33, 31}, DType::Float32, 14);
  require_same_on_any_threads([&] {
    std::vector<Tensor> sums;
    for (const Shape& kept : {Shape{1, 1, 1, 1}, {1, 24, 1, 1}, {37, 24, 33, 1}, {1, 24, 33, 31}})
      kernels::sum(sums.emplace_back(empty(kept)), x, 1);
    kernels::sum_squares(sums.emplace_back(empty({})), x);
    return sums;
  });
}

TEST_CASE("max and min with their places", "[quick][cpu]") {
  for (DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64, DType::Int32})
    for (const Shape& shape : {Shape{4, 1, 1}, {5, 37, 1}, {3, 8, 600}, {2, 100, 3}, {0, 4, 2}, {3, 4, 0}}) {
      const Tensor x = random_tensor(shape, dtype, 15, -9, 9);  // few values of the narrow types: many equals
      const Tensor y = empty({shape[0], shape[2]}, {.dtype = dtype}), index = empty(y.shape(), {.dtype = DType::Int64});
      const std::vector<double> from = values(x);
      for (bool largest : {true, false}) {
        (largest ? kernels::max : kernels::min)(y, index, x);
        const std::vector<double> found = values(y), at = values(index);
        for (int64_t o = 0; o < shape[0]; ++o)
          for (int64_t i = 0; i < shape[2]; ++i) {
            int64_t best = 0;
            const auto value = [&](int64_t n) { return from[(o * shape[1] + n) * shape[2] + i]; };
            for (int64_t n = 1; n < shape[1]; ++n)
              if (largest ? value(n) > value(best) : value(n) < value(best)) best = n;
            REQUIRE(at[o * shape[2] + i] == best);
            REQUIRE(found[o * shape[2] + i] == value(best));
          }
      }
    }
}

TEST_CASE("max and min let the first NaN win", "[quick][cpu]") {
  for (int64_t inner : {1, 2}) {
    std::vector<double> data(50 * inner, 1.0);
    data[20 * inner] = data[33 * inner] = kNaN;
    data[40 * inner] = 5;
    const Tensor x = tensor(data, {1, 50, inner}), y = empty({1, inner}, {.dtype = DType::Float64});
    const Tensor index = empty({1, inner}, {.dtype = DType::Int64});
    for (auto* kernel : {&kernels::max, &kernels::min}) {
      (*kernel)(y, index, x);
      REQUIRE(std::isnan(values(y)[0]));
      REQUIRE(values(index)[0] == 20);
    }
  }
}
