// Measures the accuracy of each convolution algorithm: its error against float64, printed and
// bounded. The measure is the root mean square of the error over that of the result. The inputs are
// as in a ResNet: rectified normal x, He-scaled w, normal dy.
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/random.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::conv_error_test {

namespace {

struct Layer {
  int64_t channels;
  int64_t size;
  int64_t filter;
  int64_t stride;
};

Tensor random(const Shape& shape, double std, DType dtype) {
  const Tensor x = empty(shape);
  normal_(x, 0, std);
  return to(x, dtype).detach();
}

struct Result {
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<double> dw;
};
Result convolve(const Layer& layer, DType dtype, DType images, DType parameters) {
  manual_seed(5);
  const int64_t c = layer.channels;
  const int64_t out = layer.size / layer.stride;
  const double he = std::sqrt(2.0 / static_cast<double>(c * layer.filter * layer.filter));
  // values that the dtype under test can hold, in the dtype to compute with
  const Tensor x = to(relu(random({4, c, layer.size, layer.size}, 1, dtype)), images)
                       .detach()
                       .set_requires_grad();
  const Tensor w = to(random({c, c, layer.filter, layer.filter}, he, DType::Float32), parameters);
  w.set_requires_grad();
  const Tensor y = conv2d(x, w, {}, {.stride = layer.stride, .padding = layer.filter / 2});
  y.backward(to(random({4, c, out, out}, 1, dtype), images).detach());
  return {to_vector<double>(y), to_vector<double>(x.grad()), to_vector<double>(w.grad())};
}

double relative_rms(const std::vector<double>& got, const std::vector<double>& want) {
  double error = 0;
  double size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  return std::sqrt(error / size);
}

}  // namespace

TEST_CASE("the errors of the convolution algorithms", "[conv][quick]") {
  std::cout << fmt::format("{:<28}{:<10}{:<10}{:>10}{:>10}{:>10}\n", "relative rms error", "dtype",
                           "algorithm", "y", "dx", "dw");
  for (const Layer& layer :
       {Layer{16, 16, 3, 1}, {64, 8, 3, 1}, {256, 4, 3, 1}, {64, 8, 3, 2}, {32, 14, 5, 1}})
    for (const DType dtype : {DType::Float32, DType::BFloat16})
      for (const ConvAlgorithm algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Winograd}) {
        const Result want = convolve(layer, dtype, DType::Float64, DType::Float64);
        set_conv_algorithm(algorithm);
        const Result got = convolve(layer, dtype, dtype, DType::Float32);
        set_conv_algorithm(ConvAlgorithm::Auto);
        const double y = relative_rms(got.y, want.y);
        const double dx = relative_rms(got.dx, want.dx);
        const double dw = relative_rms(got.dw, want.dw);
        const bool winograd = algorithm == ConvAlgorithm::Winograd;
        std::cout << fmt::format(
            "{:<28}{:<10}{:<10}{:>10.1e}{:>10.1e}{:>10.1e}\n",
            fmt::format("{}×{}, stride {}, {} ch. at {}", layer.filter, layer.filter, layer.stride,
                        layer.channels, layer.size),
            name(dtype), winograd ? "winograd" : "direct", y, dx, dw);
        // Sums of float32, whatever their order: a few units in the last place times the root of
        // their length. Products of bfloat16: half a unit for each factor and the result;
        // Winograd's intermediate values are larger. Weight gradients are of float32 whatever the
        // images are, or of 16-bit integers.
        // Filters of other sizes are multiplied in float32.
        const bool pairs = dtype == DType::BFloat16 && winograd && layer.filter == 3;
        const double bound = dtype == DType::Float32 ? 5e-6 : pairs ? 2e-2 : 5e-3;
        CHECK(y < bound);
        CHECK(dx < bound);
        CHECK(dw < (pairs ? 1e-3 : 5e-6));
      }
}

// Products of bfloat16 numbers are exact, in pairs as well: what remains of dw's error is that of
// its sums, and of y's and dx's the rounding of the results. Odd numbers of taps, channels and
// outputs, which leave half a pair.
TEST_CASE("direct products of bfloat16 numbers are exact", "[conv][quick]") {
  const int64_t shapes[][7] = {
      {1, 16, 9, 7, 5, 1, 2},  {3, 20, 12, 9, 3, 1, 1}, {3, 64, 11, 14, 7, 2, 3},
      {1, 32, 8, 8, 3, 1, 0},  {3, 16, 6, 7, 2, 2, 0},  {5, 16, 17, 33, 3, 1, 1},
      {32, 48, 9, 7, 1, 2, 0}, {20, 33, 8, 5, 1, 1, 0}, {16, 40, 7, 9, 7, 1, 3},
      {48, 16, 5, 6, 2, 1, 1}, {128, 32, 8, 8, 1, 2, 0}};
  for (const auto& [c, k, height, width, r, stride, padding] : shapes) {
    const auto run = [&](DType images, DType parameters) {
      manual_seed(7);
      const Tensor x = to(random({3, c, height, width}, 1, DType::BFloat16), images)
                           .detach()
                           .set_requires_grad(c >= 16);
      const Tensor w =
          to(random({k, c, r, r}, 1, DType::BFloat16), parameters).detach().set_requires_grad();
      const Tensor y = conv2d(x, w, {}, {.stride = stride, .padding = padding});
      y.backward(to(random(y.shape(), 1, DType::BFloat16), images).detach());
      return Result{to_vector<double>(y),
                    x.grad() ? to_vector<double>(x.grad()) : std::vector<double>{1},
                    to_vector<double>(w.grad())};
    };
    CAPTURE(c, k, height, width, r, stride, padding);
    const Result got = run(DType::BFloat16, DType::Float32);
    const Result want = run(DType::Float64, DType::Float64);
    CHECK(relative_rms(got.y, want.y) < 0x1p-9);
    if (c >= 16) CHECK(relative_rms(got.dx, want.dx) < 0x1p-9);
    CHECK(relative_rms(got.dw, want.dw) < 1e-6);
  }
}

}  // namespace ringgrad::test::conv_error_test
