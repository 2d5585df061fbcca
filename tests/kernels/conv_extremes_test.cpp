// Weight gradients of bfloat16 images whose channels are as different as they can be. Where a
// processor multiplies them as integers (Note [Products of 16-bit integers]), each channel needs a
// scale of its own, and no sum may overflow.
#include <cmath>
#include <limits>
#include <random>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::conv_extremes_test {

namespace {

constexpr int64_t kImages = 3;
constexpr int64_t kChannels = 24;

// [kImages, kChannels, size, size]. By turns a channel is noise; all alike, which sums up to the
// most; a number among others of a thousandth; zeros; zeros but in one image. Its numbers are of
// about 2^exponents, from first to last channel.
std::vector<double> images_of_all_kinds(unsigned seed, int64_t size, int first, int last) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<double> values;
  for (int64_t n = 0; n < kImages; ++n)
    for (int64_t c = 0; c < kChannels; ++c)
      for (int64_t i = 0; i < size * size; ++i) {
        const float noise = normal(generator);
        const float kinds[] = {noise, 1.875f, i == size + 2 ? 1000 : noise, 0, n == 1 ? noise : 0};
        const int64_t exponent = first + (last - first) * c / (kChannels - 1);
        values.push_back(std::ldexp(bfloat16(kinds[(c + seed) % 5]), static_cast<int>(exponent)));
      }
  return values;
}

// dw of a filter of `r` x `r`.
std::vector<double> weight_gradient(const std::vector<double>& x, const std::vector<double>& dy,
                                    int64_t size, int64_t r, int64_t stride, DType images,
                                    DType parameters) {
  const int64_t out = size / stride;
  const Tensor w = zeros({kChannels, kChannels, r, r}, {.dtype = parameters});
  w.set_requires_grad();
  const Tensor input = to(tensor(x, {kImages, kChannels, size, size}), images);
  const Tensor gradient = to(tensor(dy, {kImages, kChannels, out, out}), images);
  conv2d(input, w, {}, {.stride = stride, .padding = r / 2}).backward(gradient);
  return to_vector<double>(w.grad());
}

// Returns the norm of each channel over all images.
std::vector<double> norms(const std::vector<double>& images) {
  const size_t pixels = images.size() / (kImages * kChannels);
  std::vector<double> norms(kChannels);
  for (size_t i = 0; i < images.size(); ++i) norms[i / pixels % kChannels] += images[i] * images[i];
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

}  // namespace

// An integer is off by 0.3 (rms) if its channel's norm is 32,000. Winograd's transforms add up to
// 25 such sums, of numbers up to ten times as large as in the result.
TEST_CASE("weight gradients of bfloat16 images of all kinds and sizes", "[conv][quick]") {
  // Size of the images, filter, stride.
  const int64_t shapes[][3] = {{20, 3, 1}, {20, 5, 1}, {24, 3, 2}, {2, 3, 1}};
  for (const auto algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Winograd})
    for (const auto& [size, r, stride] : shapes)
      for (const int exponent : {0, 60, 110}) {
        INFO(size << " x " << size << ", filter " << r << ", stride " << stride << ", up to 2^"
                  << exponent << (algorithm == ConvAlgorithm::Direct ? ", direct" : ", winograd"));
        const std::vector<double> x = images_of_all_kinds(1, size, -exponent, exponent);
        const std::vector<double> dy = images_of_all_kinds(3, size / stride, exponent, -exponent);
        const auto want = weight_gradient(x, dy, size, r, stride, DType::Float64, DType::Float64);
        set_conv_algorithm(algorithm);
        const auto got = weight_gradient(x, dy, size, r, stride, DType::BFloat16, DType::Float32);
        set_conv_algorithm(ConvAlgorithm::Auto);
        const std::vector<double> x_norms = norms(x);
        const std::vector<double> dy_norms = norms(dy);
        double most = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          const double largest =
              x_norms[i / (r * r) % kChannels] * dy_norms[i / (r * r) / kChannels];
          if (largest < 1e-30 || largest > 1e30) continue;  // no number of float32, or hardly
          if (!(std::abs(got[i] - want[i]) <= most * largest))
            most = std::abs(got[i] - want[i]) / largest;
        }
        CHECK(most < (algorithm == ConvAlgorithm::Direct ? 0x1p-18 : 0x1p-11));
      }
}

TEST_CASE("weight gradients of a bfloat16 channel that is not finite", "[conv][quick]") {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const auto algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Winograd})
      for (const bool in_x : {true, false}) {
        std::vector<double> x = images_of_all_kinds(1, 20, 0, 0);
        std::vector<double> dy = images_of_all_kinds(1, 20, 0, 0);
        (in_x ? x : dy)[20 * 20 * 5 + 105] = value;  // channel 5 of the first image
        set_conv_algorithm(algorithm);
        const auto dw = weight_gradient(x, dy, 20, 3, 1, DType::BFloat16, DType::Float32);
        set_conv_algorithm(ConvAlgorithm::Auto);
        for (size_t i = 4; i < dw.size(); i += 9) {  // the middle taps
          const size_t c = i / 9 % kChannels;
          const size_t k = i / 9 / kChannels;
          INFO(value << ' ' << c << ' ' << k);
          CHECK(std::isfinite(dw[i]) == ((in_x ? c : k) != 5));
        }
      }
}

// Direct sums carry such a pixel to the outputs that see it, and to no other. With three channels
// and three columns, a row of products has an odd length.
TEST_CASE("a pixel that is not finite, in direct convolutions of few channels", "[conv][quick]") {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
    for (const int64_t channels : {1, 3, 5, 20})
      for (const int64_t r : {1, 3, 5}) {
        const int64_t height = 9;
        const int64_t width = 11;
        const int64_t row = 4;
        const int64_t column = 5;
        std::vector<double> x(channels * height * width, 0.5);
        x[((channels - 1) * height + row) * width + column] =
            std::numeric_limits<double>::infinity();
        set_conv_algorithm(ConvAlgorithm::Direct);
        const Tensor y =
            conv2d(to(tensor(x, {1, channels, height, width}), dtype),
                   full({16, channels, r, r}, 0.25, {.dtype = dtype}), {}, {.padding = r / 2});
        set_conv_algorithm(ConvAlgorithm::Auto);
        const std::vector<double> values = to_vector<double>(y);
        for (int64_t i = 0; i < y.numel(); ++i) {
          const int64_t down = std::abs(i / width % height - row);
          const int64_t across = std::abs(i % width - column);
          INFO(dtype << ", " << channels << " channels, filter " << r << ", " << down << " down, "
                     << across << " across");
          CHECK(std::isfinite(values[i]) == (down > r / 2 || across > r / 2));
        }
      }
}

}  // namespace ringgrad::test::conv_extremes_test
