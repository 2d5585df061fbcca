// Pooling on the CPU and its gradients against loops over every window, in double.
#include <limits>

#include "tests/cpu_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

// The pixels of each window of each plane, in row order; `area` is what an average divides by.
struct Windows {
  struct Window {
    std::vector<int64_t> pixels;
    double area;
  };
  std::vector<Window> of_y;  // pixels count from the start of x
  Shape y_shape;
};

Windows pool_windows(const Shape& x, const Pool2dOptions& o) {
  const int64_t step_h = o.stride.h ? o.stride.h : o.kernel.h, step_w = o.stride.w ? o.stride.w : o.kernel.w;
  const int64_t p = (x[2] + 2 * o.padding.h - o.kernel.h) / step_h + 1;
  const int64_t q = (x[3] + 2 * o.padding.w - o.kernel.w) / step_w + 1;
  Windows result{{}, {x[0], x[1], p, q}};
  for (int64_t plane = 0; plane < x[0] * x[1]; ++plane)
    for (int64_t i = 0; i < p; ++i)
      for (int64_t j = 0; j < q; ++j) {
        auto& window = result.of_y.emplace_back();
        for (int64_t h = i * step_h - o.padding.h; h < i * step_h - o.padding.h + o.kernel.h; ++h)
          for (int64_t w = j * step_w - o.padding.w; w < j * step_w - o.padding.w + o.kernel.w; ++w)
            if (h >= 0 && h < x[2] && w >= 0 && w < x[3]) window.pixels.push_back((plane * x[2] + h) * x[3] + w);
        window.area = o.count_padding ? o.kernel.h * o.kernel.w : static_cast<double>(window.pixels.size());
      }
  return result;
}

Windows adaptive_windows(const Shape& x, int64_t p, int64_t q) {
  Windows result{{}, {x[0], x[1], p, q}};
  for (int64_t plane = 0; plane < x[0] * x[1]; ++plane)
    for (int64_t i = 0; i < p; ++i)
      for (int64_t j = 0; j < q; ++j) {
        auto& window = result.of_y.emplace_back();
        for (int64_t h = 0; h < x[2]; ++h)
          for (int64_t w = 0; w < x[3]; ++w)
            if (h >= i * x[2] / p && h * p < (i + 1) * x[2] && w >= j * x[3] / q && w * q < (j + 1) * x[3])
              window.pixels.push_back((plane * x[2] + h) * x[3] + w);
        window.area = static_cast<double>(window.pixels.size());
      }
  return result;
}

void check_average(const Windows& windows, const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx) {
  const std::vector<double> vx = values(x), vdy = values(dy);
  std::vector<double> expected_y(vdy.size()), expected_dx(vx.size());
  for (size_t i = 0; i < vdy.size(); ++i)
    for (int64_t pixel : windows.of_y[i].pixels) {
      expected_y[i] += vx[pixel] / windows.of_y[i].area;
      expected_dx[pixel] += vdy[i] / windows.of_y[i].area;
    }
  require_close(y, expected_y, sum_tolerance(x.dtype(), 64));
  require_close(dx, expected_dx, sum_tolerance(x.dtype(), 64));
}

void check_pool(const Shape& shape, const Pool2dOptions& options, DType dtype) {
  INFO(shape << " kernel " << options.kernel.h << " stride " << options.stride.h << " padding " << options.padding.h
             << " " << dtype);
  const Windows windows = pool_windows(shape, options);
  const Tensor x = random_tensor(shape, dtype, 1, -9, -1), dy = random_tensor(windows.y_shape, dtype, 2);
  const Tensor y = empty(dy.shape(), {.dtype = dtype}), dx = empty(shape, {.dtype = dtype});
  const Tensor index = empty(dy.shape(), {.dtype = DType::Int32});
  kernels::max_pool2d(y, index, x, options);
  kernels::max_pool2d_backward(dx, dy, index, options);

  const std::vector<double> vx = values(x), vdy = values(dy), at = values(index);
  std::vector<double> expected_y(vdy.size()), expected_dx(vx.size());
  for (size_t i = 0; i < vdy.size(); ++i) {
    int64_t best = windows.of_y[i].pixels[0];
    for (int64_t pixel : windows.of_y[i].pixels)
      if (vx[pixel] > vx[best]) best = pixel;
    REQUIRE(at[i] == best % (shape[2] * shape[3]));
    expected_y[i] = vx[best];
    expected_dx[best] += vdy[i];
  }
  require_close(y, expected_y, 0);
  require_close(dx, expected_dx, sum_tolerance(dtype, 9));

  kernels::avg_pool2d(y, x, options);
  kernels::avg_pool2d_backward(dx, dy, options);
  check_average(windows, x, y, dy, dx);
}

}  // namespace

TEST_CASE("max_pool2d and avg_pool2d", "[quick][cpu]") {
  for (DType dtype : kFloating) {
    check_pool({2, 3, 8, 10}, {.kernel = 2}, dtype);
    check_pool({2, 3, 7, 9}, {.kernel = 2}, dtype);
    check_pool({1, 2, 9, 11}, {.kernel = 3, .stride = 2, .padding = 1}, dtype);
    check_pool({1, 2, 9, 11}, {.kernel = 3, .stride = 2, .padding = 1, .count_padding = false}, dtype);
    check_pool({2, 1, 6, 5}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}, dtype);
    check_pool({2, 2, 4, 4}, {.kernel = 4}, dtype);
    check_pool({1, 1, 5, 5}, {.kernel = 1, .stride = 2}, dtype);
    check_pool({0, 3, 8, 8}, {.kernel = 2}, dtype);
  }
  check_pool({3, 5, 64, 70}, {.kernel = 2}, DType::Float32);
}

TEST_CASE("max_pool2d lets the first of equals and the first NaN win", "[quick][cpu]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t stride : {2, 1}) {  // both the loop for halving and the general one
    const Pool2dOptions options{.kernel = 2, .stride = stride};
    const auto pool = [&](std::vector<float> window) {
      const Tensor x = tensor(window, {1, 1, 2, 2}), y = empty({1, 1, 1, 1});
      const Tensor index = empty({1, 1, 1, 1}, {.dtype = DType::Int32});
      kernels::max_pool2d(y, index, x, options);
      return std::pair(y.item<float>(), index.item<int32_t>());
    };
    REQUIRE(pool({1, 1, 1, 1}) == std::pair(1.0f, 0));
    REQUIRE(pool({0, 2, 2, 1}) == std::pair(2.0f, 1));
    REQUIRE(pool({-1, -2, -3, -1}) == std::pair(-1.0f, 0));
    REQUIRE(pool({5, nan, nan, 9}).second == 1);
    REQUIRE(std::isnan(pool({5, nan, nan, 9}).first));
    REQUIRE(pool({nan, 1, 2, 3}).second == 0);
  }
}

TEST_CASE("adaptive_avg_pool2d", "[quick][cpu]") {
  for (DType dtype : kFloating)
    for (const Shape& out : {Shape{1, 1}, {7, 5}, {3, 2}, {4, 4}, {9, 8}}) {
      const Shape shape{2, 3, 7, 5};
      const Windows windows = adaptive_windows(shape, out[0], out[1]);
      const Tensor x = random_tensor(shape, dtype, 3), dy = random_tensor(windows.y_shape, dtype, 4);
      const Tensor y = empty(dy.shape(), {.dtype = dtype}), dx = empty(shape, {.dtype = dtype});
      kernels::adaptive_avg_pool2d(y, x);
      kernels::adaptive_avg_pool2d_backward(dx, dy);
      INFO(out << " " << dtype);
      check_average(windows, x, y, dy, dx);
    }
}

TEST_CASE("pooling does not depend on the number of threads", "[quick][threads][cpu]") {
  const Tensor x = random_tensor({13, 16, 33, 31}, DType::Float32, 5);
  require_same_on_any_threads([&] {
    const Pool2dOptions options{.kernel = 3, .stride = 2, .padding = 1};
    const Tensor y = empty({13, 16, 17, 16}), index = empty(y.shape(), {.dtype = DType::Int32}), dx = empty(x.shape());
    kernels::max_pool2d(y, index, x, options);
    kernels::max_pool2d_backward(dx, y, index, options);
    return std::vector<Tensor>{y, index, dx};
  });
}
