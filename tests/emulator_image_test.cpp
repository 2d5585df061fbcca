// The CUDA kernels for pooling and batch normalisation, on emulated devices, against plain loops in double.
#ifdef RINGGRAD_CUDA_EMULATED
#include <limits>

#include "tests/emulator_kernels.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

Tensor in_layout(const Tensor& x, bool channels_last) {
  if (!channels_last) return x;
  const Tensor y = empty(x.shape(), {.dtype = x.dtype(), .layout = Layout::ChannelsLast});
  kernels::copy(y, x);
  return y;
}

DType wide(DType dtype) { return dtype == DType::Float64 ? dtype : DType::Float32; }

// The pixels of x [planes, H, W] that each window covers, padding left out, in row order.
struct Windows {
  Shape x, y;
  std::vector<std::vector<int64_t>> pixels;  // per output, as h W + w inside its plane
  std::vector<double> divisor;

  Windows(const Shape& x, const Pool2dOptions& o) : x(x) {
    const Pair stride = o.stride == Pair(0) ? o.kernel : o.stride;
    y = {x[0], x[1], (x[2] + 2 * o.padding.h - o.kernel.h) / stride.h + 1,
         (x[3] + 2 * o.padding.w - o.kernel.w) / stride.w + 1};
    for (int64_t p = 0; p < y[2]; ++p)
      for (int64_t q = 0; q < y[3]; ++q)
        add(p * stride.h - o.padding.h, p * stride.h - o.padding.h + o.kernel.h, q * stride.w - o.padding.w,
            q * stride.w - o.padding.w + o.kernel.w, o.count_padding);
  }
  Windows(const Shape& x, int64_t height, int64_t width) : x(x), y{x[0], x[1], height, width} {  // adaptive
    for (int64_t p = 0; p < height; ++p)
      for (int64_t q = 0; q < width; ++q)
        add(p * x[2] / height, ((p + 1) * x[2] + height - 1) / height, q * x[3] / width,
            ((q + 1) * x[3] + width - 1) / width, false);
  }
  void add(int64_t h0, int64_t h1, int64_t w0, int64_t w1, bool count_padding) {
    pixels.emplace_back();
    for (int64_t h = std::max<int64_t>(0, h0); h < std::min(h1, x[2]); ++h)
      for (int64_t w = std::max<int64_t>(0, w0); w < std::min(w1, x[3]); ++w) pixels.back().push_back(h * x[3] + w);
    divisor.push_back(static_cast<double>(count_padding ? (h1 - h0) * (w1 - w0) : pixels.back().size()));
  }
  int64_t planes() const { return x[0] * x[1]; }

  void average(const std::vector<double>& from, std::vector<double>& to) const {
    for (int64_t plane = 0; plane < planes(); ++plane)
      for (size_t i = 0; i < pixels.size(); ++i) {
        double total = 0;
        for (int64_t pixel : pixels[i]) total += from[plane * x[2] * x[3] + pixel];
        to.push_back(total / divisor[i]);
      }
  }
  std::vector<double> spread(const std::vector<double>& dy) const {
    std::vector<double> dx(static_cast<size_t>(x.numel()));
    for (int64_t plane = 0; plane < planes(); ++plane)
      for (size_t i = 0; i < pixels.size(); ++i)
        for (int64_t pixel : pixels[i]) dx[plane * x[2] * x[3] + pixel] += dy[plane * pixels.size() + i] / divisor[i];
    return dx;
  }
};

const std::vector<Pool2dOptions> kPools{{},
                                        {.kernel = 3, .stride = 2, .padding = 1},
                                        {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .count_padding = false},
                                        {.kernel = 2, .stride = 3}};  // some pixels are in no window

}  // namespace

TEST_CASE("cuda: max pooling", "[quick][emulated]") {
  for (DType dtype : kFloating)
    for (const Pool2dOptions& o : kPools)
      for (const bool channels_last : {false, true}) {
        const Shape shape{2, 3, 7, 6};
        const Windows windows(shape, o);
        const Tensor x = random_tensor(shape, DType::Int32, 1, 0, 9);  // many equals
        const Tensor image = in_layout(empty(shape, {.dtype = dtype}), channels_last);
        kernels::copy(image, x);
        if (dtype == DType::Float32) image.data<float>()[8] = std::numeric_limits<float>::quiet_NaN();
        const Tensor dy = random_tensor(windows.y, dtype, 2);
        const auto vx = values(image), vdy = values(dy);
        std::vector<double> y, index, dx(vx.size());
        for (int64_t plane = 0; plane < windows.planes(); ++plane)
          for (const auto& pixels : windows.pixels) {
            const auto at = [&](int64_t pixel) { return vx[plane * 42 + pixel]; };
            int64_t best = pixels[0];
            for (int64_t pixel : pixels)
              if (at(pixel) > at(best) || (std::isnan(at(pixel)) && !std::isnan(at(best)))) best = pixel;
            dx[plane * 42 + best] += vdy[y.size()];
            y.push_back(at(best));
            index.push_back(static_cast<double>(best));
          }
        const Tensor out = to_device(in_layout(dy, channels_last));
        const Tensor at = to_device(in_layout(empty(windows.y, {.dtype = DType::Int32}), channels_last));
        kernels::max_pool2d(out, at, to_device(image), o);
        require_device_close(out, y, 0);
        REQUIRE(device_values(at) == index);
        const Tensor out_dx = to_device(image);
        kernels::max_pool2d_backward(out_dx, to_device(in_layout(dy, channels_last)), at, o);
        require_device_close(out_dx, dx, sum_tolerance(dtype, 4));
      }
}

TEST_CASE("cuda: average pooling, by window and adaptive", "[quick][emulated]") {
  for (DType dtype : kFloating)
    for (const bool channels_last : {false, true}) {
      const Shape shape{2, 3, 7, 6};
      const Tensor x = in_layout(random_tensor(shape, dtype, 3), channels_last);
      const auto check = [&](const Windows& windows, auto forward, auto backward) {
        const Tensor dy = in_layout(random_tensor(windows.y, dtype, 4), channels_last), out = to_device(dy);
        const Tensor out_dx = to_device(x);
        std::vector<double> y;
        windows.average(values(x), y);
        forward(out, to_device(x));
        require_device_close(out, y, sum_tolerance(dtype, 42));
        backward(out_dx, to_device(dy));
        require_device_close(out_dx, windows.spread(values(dy)), sum_tolerance(dtype, 42));
      };
      for (const Pool2dOptions& o : kPools)
        check(
            Windows(shape, o), [&](const Tensor& y, const Tensor& from) { kernels::avg_pool2d(y, from, o); },
            [&](const Tensor& dx, const Tensor& dy) { kernels::avg_pool2d_backward(dx, dy, o); });
      for (const auto& [height, width] : {std::pair{1, 1}, {3, 4}, {7, 6}, {9, 2}})
        check(
            Windows(shape, height, width),
            [&](const Tensor& y, const Tensor& from) { kernels::adaptive_avg_pool2d(y, from); },
            [&](const Tensor& dx, const Tensor& dy) { kernels::adaptive_avg_pool2d_backward(dx, dy); });
    }
}

TEST_CASE("cuda: batch normalisation in its four steps", "[quick][emulated]") {
  struct Case {
    Shape shape;
    bool channels_last;
  };
  const std::vector<Case> cases{{{3, 5, 3, 3}, false}, {{3, 5, 3, 3}, true}, {{2, 8, 4, 4}, false},
                                {{2, 16, 4, 4}, true}, {{30, 7}, false},     {{9, 2, 33, 33}, false},
                                {{9, 3, 17, 17}, true}};
  for (DType dtype : kFloating)
    for (const Case& c : cases)
      for (const bool rich : {false, true}) {  // with weight, bias, residual and relu, or without
        const double eps = 1e-3;
        const int64_t channels = c.shape[1], count = c.shape.numel() / channels;
        const int64_t inner = c.shape.numel() / c.shape[0] / channels;
        const auto random = [&](uint32_t seed, double low, double high) {
          return in_layout(random_tensor(c.shape, dtype, seed, low, high), c.channels_last);
        };
        const Tensor x = random(5, 9, 11), dy = random(6, -1, 1), residual = random(7, -1, 1);
        const Tensor w = random_tensor({channels}, wide(dtype), 8, 0.5, 2),
                     b = random_tensor({channels}, wide(dtype), 9);
        const auto vx = values(x), vdy = values(dy), vr = values(residual), vw = values(w), vb = values(b);
        const auto channel = [&](size_t i) { return static_cast<int64_t>(i) / inner % channels; };
        std::vector<double> mean(channels), var(channels), sum_g(channels), sum_g_xhat(channels);
        std::vector<double> y(vx.size()), g(vx.size()), dx(vx.size());
        for (size_t i = 0; i < vx.size(); ++i) mean[channel(i)] += vx[i] / count;
        for (size_t i = 0; i < vx.size(); ++i)
          var[channel(i)] += (vx[i] - mean[channel(i)]) * (vx[i] - mean[channel(i)]) / count;
        const auto xhat = [&](size_t i) { return (vx[i] - mean[channel(i)]) / std::sqrt(var[channel(i)] + eps); };
        INFO(dtype << " " << c.shape << (c.channels_last ? " NHWC" : "") << ", rich " << rich);

        const Tensor device_x = to_device(x), device_dy = to_device(dy), out = to_device(x);
        const Tensor out_mean = empty_on_device({channels}, wide(dtype)),
                     out_var = empty_on_device({channels}, wide(dtype));
        kernels::batch_norm_stats(out_mean, out_var, device_x);
        // The terms are around 10: rounding shows in proportion.
        require_device_close(out_mean, mean, 10 * sum_tolerance(wide(dtype), count));
        require_device_close(out_var, var, 30 * sum_tolerance(wide(dtype), count));
        const Tensor dw = rich ? to_device(w) : Tensor(), db = rich ? to_device(b) : Tensor();
        kernels::batch_norm_apply(out, device_x, out_mean, out_var, dw, db, rich ? to_device(residual) : Tensor(), eps,
                                  rich);
        for (size_t i = 0; i < vx.size(); ++i) {
          y[i] = xhat(i);
          if (rich) y[i] = std::max(0.0, y[i] * vw[channel(i)] + vb[channel(i)] + vr[i]);
        }
        const double close = 2 * epsilon(dtype) + 300 * sum_tolerance(wide(dtype), count);
        require_device_close(out, y, close);

        // Backward sees the y that was computed: where it is zero nothing passes.
        const auto computed = device_values(out);
        for (size_t i = 0; i < vx.size(); ++i) {
          g[i] = rich && !(computed[i] > 0) ? 0 : vdy[i];
          sum_g[channel(i)] += g[i];
          sum_g_xhat[channel(i)] += g[i] * xhat(i);
        }
        for (size_t i = 0; i < vx.size(); ++i)
          dx[i] = (rich ? vw[channel(i)] : 1) / std::sqrt(var[channel(i)] + eps) *
                  (g[i] - sum_g[channel(i)] / count - xhat(i) * sum_g_xhat[channel(i)] / count);
        const Tensor out_sum = empty_on_device({channels}, wide(dtype)),
                     out_dot = empty_on_device({channels}, wide(dtype));
        const Tensor y_or_none = rich ? out : Tensor(), out_dx = to_device(x), out_dr = rich ? to_device(x) : Tensor();
        kernels::batch_norm_backward_reduce(out_sum, out_dot, device_dy, device_x, y_or_none, out_mean, out_var, eps);
        require_device_close(out_sum, sum_g, 4 * sum_tolerance(wide(dtype), count));
        require_device_close(out_dot, sum_g_xhat, 300 * sum_tolerance(wide(dtype), count));
        kernels::batch_norm_backward_apply(out_dx, out_dr, device_dy, device_x, y_or_none, out_mean, out_var, dw,
                                           out_sum, out_dot, eps, static_cast<double>(count));
        require_device_close(out_dx, dx, close);
        if (rich) require_device_close(out_dr, g, 0);
      }
}
#endif
