// The CUDA kernels for sums, maxima, softmax and losses, on emulated devices, against plain loops in double.
#ifdef RINGGRAD_CUDA_EMULATED
#include <limits>

#include "cuda_kernels/emulator/config.h"
#include "tests/emulator_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<double> expected_sum(const Tensor& x, const Shape& kept, double scale) {
  const std::vector<double> from = values(x);
  std::vector<double> sums(static_cast<size_t>(kept.numel()));
  const Strides strides = contiguous_strides(kept);
  for (size_t i = 0; i < from.size(); ++i) {
    int64_t rest = static_cast<int64_t>(i), to = 0;
    for (int d = x.dim() - 1; d >= 0; --d) {
      if (kept[d] != 1) to += rest % x.shape()[d] * strides[d];
      rest /= x.shape()[d];
    }
    sums[static_cast<size_t>(to)] += scale * from[i];
  }
  return sums;
}

void check_sum(const Tensor& x, const Shape& kept, double scale = 1) {
  INFO("sum of " << x.shape() << " with strides " << x.strides() << " to " << kept << ", " << x.dtype());
  const Tensor y = empty_on_device(kept, x.dtype());
  kernels::sum(y, to_device(x), scale);
  const int64_t terms = kept.numel() ? x.numel() / kept.numel() : 0;
  require_device_close(y, expected_sum(x, kept, scale), sum_tolerance(x.dtype(), terms));
}

struct Rows {
  int64_t n, c;
  std::vector<double> x;
  double at(int64_t row, int64_t column) const { return x[static_cast<size_t>(row * c + column)]; }
  double log_sum_exp(int64_t row) const {
    double highest = -kInf, total = 0;
    for (int64_t j = 0; j < c; ++j) highest = std::max(highest, at(row, j));
    for (int64_t j = 0; j < c; ++j) total += std::exp(at(row, j) - highest);
    return highest + std::log(total);
  }
};

// One element per row or column: short rows go to warps, long ones to blocks.
constexpr int64_t kLengths[] = {1, 7, 32, 100, 1500};

DType wide(DType dtype) { return dtype == DType::Float64 ? dtype : DType::Float32; }

}  // namespace

TEST_CASE("cuda: sum over any dimensions", "[quick][emulated]") {
  using emulator::Schedule;
  emulator::config().schedule = GENERATE(Schedule::Forward, Schedule::Reversed);
  for (DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64, DType::Int32}) {
    const Tensor x = random_tensor({3, 5, 4, 11}, dtype, 1, -1, is_floating(dtype) ? 1 : 100);
    for (int mask = 0; mask < 16; ++mask) {
      Shape kept = x.shape();
      for (int d = 0; d < 4; ++d)
        if (mask >> d & 1) kept[d] = 1;
      check_sum(x, kept, is_floating(dtype) ? 0.5 : 1);
    }
  }
  emulator::config().schedule = Schedule::Forward;
}

TEST_CASE("cuda: sum of long rows, long columns, channels and nothing", "[quick][emulated]") {
  check_sum(random_tensor({100003}, DType::Float32, 2), {1});
  check_sum(random_tensor({3, 9000}, DType::Float32, 3), {3, 1});
  check_sum(random_tensor({2000, 3}, DType::Float32, 4), {1, 3});
  check_sum(random_tensor({40, 500}, DType::BFloat16, 5), {1, 500});
  check_sum(random_tensor({9, 6, 17, 17}, DType::Float32, 6), {1, 6, 1, 1});
  check_sum(transposed(random_tensor({50, 300}, DType::Float32, 7)), {1, 50});
  check_sum(random_tensor({7, 1}, DType::Float32, 8).as_strided({7, 9}, {1, 0}, 0), {1, 9});  // expanded
  check_sum(random_tensor({0, 3}, DType::Float32, 9), {1, 3});
  check_sum(random_tensor({3, 0}, DType::Float32, 9), {1, 0});
}

TEST_CASE("cuda: sum of squares", "[quick][emulated]") {
  for (DType dtype : kFloating) {
    const Tensor x = random_tensor({20000}, dtype, 10), y = empty_on_device({}, wide(dtype));
    kernels::sum_squares(y, to_device(x));
    double expected = 0;
    for (double v : values(x)) expected += v * v;
    require_device_close(y, {expected}, sum_tolerance(wide(dtype), x.numel()));
  }
}

TEST_CASE("cuda: max and min find the first of equals, and NaN", "[quick][emulated]") {
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Int32, DType::UInt8})
    for (const int64_t inner : {1, 3})
      for (const int64_t n : kLengths) {
        const Tensor x = random_tensor({4, n, inner}, dtype, 11, 0, 9.99);  // many equals
        std::vector<double> v = values(x);
        if (is_floating(dtype) && n > 2) {
          const Tensor wide_x = empty(x.shape(), {.dtype = DType::Float64});
          v[static_cast<size_t>((n - 1) * inner)] = v[static_cast<size_t>(inner)] = kNan;  // of the first row
          std::copy(v.begin(), v.end(), wide_x.data<double>());
          kernels::copy(x, wide_x);
        }
        for (const bool largest : {true, false}) {
          const Tensor y = empty_on_device({4, inner}, dtype), index = empty_on_device({4, inner}, DType::Int64);
          (largest ? kernels::max : kernels::min)(y, index, to_device(x));
          std::vector<double> best, place;
          for (int64_t o = 0; o < 4; ++o)
            for (int64_t i = 0; i < inner; ++i) {
              const auto at = [&](int64_t j) { return v[static_cast<size_t>((o * n + j) * inner + i)]; };
              int64_t found = 0;
              for (int64_t j = 1; j < n; ++j)
                if ((largest ? at(j) > at(found) : at(j) < at(found)) || (std::isnan(at(j)) && !std::isnan(at(found))))
                  found = j;
              best.push_back(at(found));
              place.push_back(static_cast<double>(found));
            }
          INFO((largest ? "max" : "min") << " of " << x.shape() << " " << dtype);
          require_device_close(y, best, 0);
          REQUIRE(device_values(index) == place);
        }
      }
}

TEST_CASE("cuda: softmax and log_softmax with their derivatives", "[quick][emulated]") {
  for (DType dtype : kFloating)
    for (const int64_t c : kLengths) {
      const Rows rows{3, c, values(random_tensor({3, c}, dtype, 12, -20, 20))};
      const Tensor x = random_tensor({3, c}, dtype, 12, -20, 20), dy = random_tensor({3, c}, dtype, 13);
      std::vector<double> y, log_y;
      for (int64_t n = 0; n < 3; ++n)
        for (int64_t j = 0; j < c; ++j) {
          log_y.push_back(rows.at(n, j) - rows.log_sum_exp(n));
          y.push_back(std::exp(log_y.back()));
        }
      const double close = 20 * sum_tolerance(dtype, c);
      const Tensor out = empty_on_device({3, c}, dtype), dx = empty_on_device({3, c}, dtype);
      INFO(dtype << " rows of " << c);
      kernels::softmax(out, to_device(x));
      require_device_close(out, y, close);
      const std::vector<double> rounded = device_values(out), vdy = values(dy);
      kernels::softmax_backward(dx, to_device(dy), out);
      std::vector<double> expected(rounded.size());
      for (int64_t n = 0; n < 3; ++n) {
        double dot = 0;
        for (int64_t i = n * c; i < (n + 1) * c; ++i) dot += vdy[i] * rounded[i];
        for (int64_t i = n * c; i < (n + 1) * c; ++i) expected[i] = rounded[i] * (vdy[i] - dot);
      }
      require_device_close(dx, expected, close);

      kernels::log_softmax(out, to_device(x));
      require_device_close(out, log_y, close);
      kernels::log_softmax_backward(dx, to_device(dy), out);
      const std::vector<double> log_rounded = device_values(out);
      for (int64_t n = 0; n < 3; ++n) {
        double total = 0;
        for (int64_t i = n * c; i < (n + 1) * c; ++i) total += vdy[i];
        for (int64_t i = n * c; i < (n + 1) * c; ++i) expected[i] = vdy[i] - std::exp(log_rounded[i]) * total;
      }
      require_device_close(dx, expected, close);
    }
}

// More long rows than blocks: each block reduces one after another, in the same shared memory.
TEST_CASE("cuda: blocks that go over several rows", "[quick][emulated]") {
  const int64_t n = 33 * 3 + 11, c = 1100;
  const Tensor x = random_tensor({n, c}, DType::Float32, 20), y = empty_like(x), device_y = empty_like(to_device(x));
  kernels::softmax(y, x);
  kernels::softmax(device_y, to_device(x));
  require_device_close(device_y, values(y), sum_tolerance(DType::Float32, c));
  const Tensor rows = x.as_strided({n, c, 1}, {c, 1, 1}, 0), device_rows = to_device(rows);
  const Tensor best = empty({n, 1}), place = empty({n, 1}, {.dtype = DType::Int64});
  const Tensor device_best = to_device(best), device_place = to_device(place);
  kernels::max(best, place, rows);
  kernels::max(device_best, device_place, device_rows);
  require_device_close(device_best, values(best), 0);
  REQUIRE(device_values(device_place) == values(place));
}

TEST_CASE("cuda: cross entropy with class weights, smoothing and ignored rows", "[quick][emulated]") {
  for (DType dtype : {DType::Float32, DType::BFloat16, DType::Float64})
    for (const int64_t c : {5, 1500})
      for (const double smoothing : {0.0, 0.1})
        for (const bool weighted : {false, true}) {
          const int64_t n = 6;
          const Tensor x = random_tensor({n, c}, dtype, 14, -4, 4), u = random_tensor({c}, wide(dtype), 15, 0.5, 2);
          const Tensor scale = random_tensor({n}, wide(dtype), 16, 0.5, 1);
          const Tensor t = tensor<int64_t>({0, c - 1, 2, -100, 1, c});  // the last one is outside
          const Rows rows{n, c, values(x)};
          const std::vector<double> class_weight = weighted ? values(u) : std::vector<double>(c, 1), vs = values(scale);
          std::vector<double> loss, weight, lse, dx;
          for (int64_t i = 0; i < n; ++i) {
            const int64_t target = t.data<int64_t>()[i];
            lse.push_back(rows.log_sum_exp(i));
            const bool ignored = target == -100, wrong = target >= c;
            double smooth = 0, weight_sum = 0;
            for (int64_t j = 0; j < c; ++j) {
              smooth += class_weight[j] * (rows.at(i, j) - lse.back());
              weight_sum += class_weight[j];
            }
            const double w = ignored ? 0 : wrong ? kNan : class_weight[target];
            weight.push_back(w);
            loss.push_back(ignored || wrong ? w
                                            : -(1 - smoothing) * w * (rows.at(i, target) - lse.back()) -
                                                  smoothing / static_cast<double>(c) * smooth);
            for (int64_t j = 0; j < c; ++j) {
              const double p = std::exp(rows.at(i, j) - lse.back());
              const double slope = (1 - smoothing) * w * (p - (j == target)) +
                                   smoothing / static_cast<double>(c) * (weight_sum * p - class_weight[j]);
              dx.push_back(ignored ? 0 : wrong ? kNan : vs[i] * slope);
            }
          }
          const kernels::CrossEntropyOptions options{.label_smoothing = smoothing};
          const Tensor du = weighted ? to_device(u) : Tensor(), dt = to_device(t), device_x = to_device(x);
          const Tensor out = empty_on_device({n}, wide(dtype)), out_weight = empty_on_device({n}, wide(dtype));
          const Tensor out_lse = empty_on_device({n}, wide(dtype)), out_dx = empty_on_device({n, c}, dtype);
          INFO(dtype << " " << c << " classes, smoothing " << smoothing << ", weighted " << weighted);
          kernels::cross_entropy(out, out_weight, out_lse, device_x, dt, du, options);
          require_device_close(out, loss, 10 * sum_tolerance(wide(dtype), c));
          require_device_close(out_weight, weight, sum_tolerance(wide(dtype), 1));
          require_device_close(out_lse, lse, sum_tolerance(wide(dtype), c));
          kernels::cross_entropy_backward(out_dx, to_device(scale), device_x, out_lse, dt, du, options);
          require_device_close(out_dx, dx, 10 * sum_tolerance(dtype, c));
        }
}

TEST_CASE("cuda: cross entropy of infinite logits", "[quick][emulated]") {
  const float inf = std::numeric_limits<float>::infinity();
  const Tensor x = tensor<float>({-inf, 0, -inf, inf, 0, 1}, {2, 3});
  const Tensor loss = empty_on_device({2}, DType::Float32), weight = empty_on_device({2}, DType::Float32);
  const Tensor lse = empty_on_device({2}, DType::Float32);
  kernels::cross_entropy(loss, weight, lse, to_device(x), to_device(tensor<int64_t>({1, 1})), {}, {});
  require_device_close(loss, {0, kNan}, 1e-6);
}

TEST_CASE("cuda: negative log likelihood", "[quick][emulated]") {
  const int64_t n = 5, c = 4;
  const Tensor x = random_tensor({n, c}, DType::Float32, 17, -3, 0), u = random_tensor({c}, DType::Float32, 18, 0.5, 2);
  const Tensor scale = random_tensor({n}, DType::Float32, 19), t = tensor<int64_t>({0, 3, -100, 9, 2});
  const auto vx = values(x), vu = values(u), vs = values(scale);
  const std::vector<double> loss{-vu[0] * vx[0], -vu[3] * vx[7], 0, kNan, -vu[2] * vx[18]};
  const std::vector<double> weight{vu[0], vu[3], 0, kNan, vu[2]};
  std::vector<double> dx(20, 0);
  dx[0] = -vu[0] * vs[0];
  dx[7] = -vu[3] * vs[1];
  for (int j = 12; j < 16; ++j) dx[j] = kNan;
  dx[18] = -vu[2] * vs[4];
  const Tensor out = empty_on_device({n}, DType::Float32), out_weight = empty_on_device({n}, DType::Float32);
  kernels::nll_loss(out, out_weight, to_device(x), to_device(t), to_device(u), -100);
  require_device_close(out, loss, 1e-6);
  require_device_close(out_weight, weight, 1e-6);
  const Tensor out_dx = empty_on_device({n, c}, DType::Float32);
  kernels::nll_loss_backward(out_dx, to_device(scale), to_device(t), to_device(u), -100);
  require_device_close(out_dx, dx, 1e-6);
}
#endif
