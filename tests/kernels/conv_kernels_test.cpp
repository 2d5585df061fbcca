// The CPU's convolution kernels against a direct convolution in double precision, over geometries
// that have whole and partial tiles, whole and partial channel blocks, and fewer tiles than
// threads.
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/conv/blocked_images.h"
#include "ringgrad/core/cpu/conv/convolve.h"
#include "ringgrad/core/cpu/conv/plan.h"
#include "ringgrad/core/cpu/thread_pool.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::conv_kernels_test {
using namespace ringgrad::conv;

namespace {

// One pool per number of threads, kept: the allocator's free lists remember the stream.
Stream pool_stream(int threads) {
  static std::unique_ptr<ThreadPool> pools[4];
  if (!pools[threads]) pools[threads] = std::make_unique<ThreadPool>(threads);
  return {Device("cpu"), pools[threads].get()};
}

std::vector<float> random_values(size_t count, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

// Everything a geometry needs, in NCHW.
struct Problem {
  explicit Problem(const Conv2dGeometry& geometry) : g(geometry) {
    x = random_values(g.n * g.c * g.h * g.w, 1);
    w = random_values(g.k * g.c * g.r * g.s, 2,
                      std::sqrt(2.0f / static_cast<float>(g.c * g.r * g.s)));
    dy = random_values(g.n * g.k * g.oh * g.ow, 3);
    bias = random_values(g.k, 4);
  }

  // body(n, k, p, q, c, i, j, r, s) for each product that exists
  template <class Body>
  void for_each_product(Body body) const {
    for (int64_t n = 0; n < g.n; ++n)
      for (int64_t k = 0; k < g.k; ++k)
        for (int64_t p = 0; p < g.oh; ++p)
          for (int64_t q = 0; q < g.ow; ++q)
            for (int64_t r = 0; r < g.r; ++r)
              for (int64_t s = 0; s < g.s; ++s) {
                const int64_t i = p * g.stride + r - g.padding;
                const int64_t j = q * g.stride + s - g.padding;
                if (i < 0 || j < 0 || i >= g.h || j >= g.w) continue;
                for (int64_t c = 0; c < g.c; ++c)
                  body(((n * g.k + k) * g.oh + p) * g.ow + q, ((n * g.c + c) * g.h + i) * g.w + j,
                       ((k * g.c + c) * g.r + r) * g.s + s);
              }
  }

  Conv2dGeometry g;
  std::vector<float> x;
  std::vector<float> w;
  std::vector<float> dy;
  std::vector<float> bias;
};

std::vector<float> blocked(Stream stream, const std::vector<float>& nchw, int64_t n, int64_t c,
                           int64_t h, int64_t w) {
  std::vector<float> out(n * channel_blocks(c) * kChannelBlock * h * w,
                         std::numeric_limits<float>::quiet_NaN());
  nchw_to_blocked(stream, {n, c, h * w, c * h * w, h * w}, nchw.data(), out.data());
  return out;
}
std::vector<float> contiguous(Stream stream, const std::vector<float>& image, int64_t n, int64_t c,
                              int64_t h, int64_t w) {
  std::vector<float> out(n * c * h * w, std::numeric_limits<float>::quiet_NaN());
  blocked_to_nchw(stream, {n, c, h * w, c * h * w, h * w}, image.data(), out.data());
  return out;
}

// rms error / rms of the reference; NaN if anything is NaN
double relative_error(const std::vector<float>& got, const std::vector<double>& reference) {
  REQUIRE(got.size() == reference.size());
  double difference = 0;
  double size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - reference[i]) * (got[i] - reference[i]);
    size += reference[i] * reference[i];
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

// The bound is in units of u = 2^-24. Each of `terms` additions rounds the sum so far, which makes
// at most sqrt(terms). Winograd's transforms round numbers up to ten times as large as the result,
// those of F(4,5) up to forty. bfloat16 factors are rounded by 2^-9 (0.2 %) each, before or after
// all transforms but F(4,5)'s. Those of a weight gradient are not rounded, or rounded to integers.
bool takes_f45(const Conv2dGeometry& g) { return g.r == 5 && std::min(g.oh, g.ow) > 2; }
template <class T>
double tolerance(const Conv2dGeometry& g, ConvAlgorithm algorithm, double terms) {
  const bool winograd = algorithm == ConvAlgorithm::Winograd;
  if (std::is_same_v<T, bfloat16>) return winograd && !takes_f45(g) ? 0.06 : 0.006;
  return 0x1p-24 * ((!winograd ? 4 : takes_f45(g) ? 192 : 48) + std::sqrt(terms));
}

template <class T>
std::vector<T> converted(const std::vector<float>& values) {
  return std::vector<T>(values.begin(), values.end());
}

bool padding_is_zero(const std::vector<float>& image, const BlockedShape& shape, int64_t channels) {
  for (int64_t n = 0; n < shape.n; ++n)
    for (int64_t i = 0; i < shape.h * shape.w; ++i)
      for (int64_t c = channels; c < shape.channels(); ++c)
        if (image[((n * shape.blocks + c / kChannelBlock) * shape.h * shape.w + i) * kChannelBlock +
                  c % kChannelBlock] != 0)
          return false;
  return true;
}

// All outputs of one geometry and method, for comparisons bit by bit. With `adds` y has a bias, and
// x is added to dx.
struct Outputs {
  std::vector<float> y;
  std::vector<float> dx;
  std::vector<float> dw;
  bool operator==(const Outputs&) const = default;
};

// Returns the method that a plan chooses for blocked images of T.
template <class T>
ConvMethod method_of(const Conv2dGeometry& g, ConvPass pass, ConvAlgorithm algorithm) {
  return plan({.pass = pass,
               .dtype = dtype_of<T>,
               .x = {g.n, g.c, g.h, g.w},
               .w = {g.k, g.c, g.r, g.s},
               .options = {.stride = g.stride, .padding = g.padding},
               .x_layout = Layout::ChannelBlocked,
               .layout = Layout::ChannelBlocked,
               .wanted = algorithm})
      .method;
}

template <class T>
Outputs run(Stream stream, const Problem& p, ConvAlgorithm algorithm, bool adds) {
  const Conv2dGeometry& g = p.g;
  const auto x = converted<T>(blocked(stream, p.x, g.n, g.c, g.h, g.w));
  const auto dy = converted<T>(blocked(stream, p.dy, g.n, g.k, g.oh, g.ow));
  const float nan = std::numeric_limits<float>::quiet_NaN();  // what is not written shows
  std::vector<T> y(output_shape(g).numel(), nan);
  std::vector<T> dx(input_shape(g).numel(), nan);
  std::vector<float> dw(p.w.size(), nan);
  convolve<T>(stream, g, method_of<T>(g, ConvPass::Forward, algorithm), Direction::Forward,
              x.data(), p.w.data(), adds ? p.bias.data() : nullptr, nullptr, y.data());
  convolve<T>(stream, g, method_of<T>(g, ConvPass::BackwardInput, algorithm),
              Direction::BackwardInput, dy.data(), p.w.data(), nullptr, adds ? x.data() : nullptr,
              dx.data());
  weight_gradient(stream, g, method_of<T>(g, ConvPass::BackwardWeight, algorithm), x.data(),
                  dy.data(), dw.data());
  return {{y.begin(), y.end()}, {dx.begin(), dx.end()}, dw};
}

struct References {
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<double> dw;
};

References references(const Problem& p, bool adds) {
  const Conv2dGeometry& g = p.g;
  References o{std::vector<double>(p.dy.size()), std::vector<double>(p.x.size()),
               std::vector<double>(p.w.size())};
  p.for_each_product([&](int64_t y_at, int64_t x_at, int64_t w_at) {
    o.y[y_at] += static_cast<double>(p.x[x_at]) * p.w[w_at];
    o.dx[x_at] += static_cast<double>(p.dy[y_at]) * p.w[w_at];
    o.dw[w_at] += static_cast<double>(p.x[x_at]) * p.dy[y_at];
  });
  for (size_t i = 0; adds && i < o.y.size(); ++i) o.y[i] += p.bias[i / (g.oh * g.ow) % g.k];
  for (size_t i = 0; adds && i < o.dx.size(); ++i) o.dx[i] += p.x[i];
  return o;
}

template <class T>
void check(const Conv2dGeometry& g, ConvAlgorithm algorithm) {
  Problem p(g);
  for (auto* values : {&p.x, &p.dy})  // the reference sees what the kernel sees
    for (float& value : *values) value = T(value);
  const Stream stream = pool_stream(2);
  for (bool adds : {false, true}) {
    INFO("n " << g.n << " c " << g.c << " h " << g.h << " w " << g.w << " k " << g.k << " r " << g.r
              << " s " << g.s << " stride " << g.stride << " padding " << g.padding
              << (algorithm == ConvAlgorithm::Winograd ? " winograd" : " direct")
              << (std::is_same_v<T, bfloat16> ? " bfloat16" : " float32")
              << (adds ? " bias, addend" : ""));
    const References expected = references(p, adds);
    const Outputs got = run<T>(stream, p, algorithm, adds);
    const double taps = static_cast<double>(g.r * g.s);
    const double outputs = static_cast<double>(g.n * g.oh * g.ow);
    const auto y = contiguous(stream, got.y, g.n, g.k, g.oh, g.ow);
    const auto dx = contiguous(stream, got.dx, g.n, g.c, g.h, g.w);
    REQUIRE(relative_error(y, expected.y) <
            tolerance<T>(g, algorithm, taps * static_cast<double>(g.c)));
    REQUIRE(relative_error(dx, expected.dx) <
            tolerance<T>(g, algorithm, taps * static_cast<double>(g.k)));
    const bool integers =
        std::is_same_v<T, bfloat16> && algorithm == ConvAlgorithm::Winograd && !takes_f45(g);
    REQUIRE(relative_error(got.dw, expected.dw) <
            (integers ? 1e-3 : tolerance<float>(g, algorithm, outputs)));
    REQUIRE(padding_is_zero(got.y, output_shape(g), g.k));
    REQUIRE(padding_is_zero(got.dx, input_shape(g), g.c));
    // the same bits with any number of threads
    for (int threads : {1, 3}) REQUIRE((run<T>(pool_stream(threads), p, algorithm, adds) == got));
  }
}

// Products of bfloat16 numbers by vectors, whatever the processor has; then as it was before.
struct Using {
  explicit Using(amx::Tiles tiles) : before(amx::tiles()) { amx::use_tiles(tiles); }
  ~Using() { amx::use_tiles(before); }
  const amx::Tiles before;
};

void check_all(const Conv2dGeometry& g, ConvAlgorithm algorithm) {
  check<float>(g, algorithm);
  const Using vectors(amx::Tiles::None);
  check<bfloat16>(g, algorithm);
}

}  // namespace

TEST_CASE("winograd 3x3, stride 1", "[quick][conv]") {
  // n, c, h, w, k, padding. 17 images: ragged tiles in two groups; 450: ten blocks; 288: three full
  // ones of integers.
  const int64_t shapes[][7] = {
      {1, 1, 4, 4, 1, 1},    {1, 3, 5, 7, 16, 1},    {2, 16, 8, 8, 16, 1},    {3, 20, 9, 6, 48, 1},
      {5, 48, 13, 4, 20, 1}, {1, 64, 16, 16, 64, 1}, {1, 16, 4, 24, 64, 1},   {4, 64, 7, 7, 3, 0},
      {2, 33, 10, 5, 17, 2}, {1, 16, 3, 3, 16, 0},   {1, 32, 24, 24, 32, 1},  {1, 8, 6, 6, 8, 3},
      {17, 65, 5, 7, 65, 1}, {450, 17, 2, 3, 16, 1}, {288, 144, 1, 1, 144, 1}};
  for (const auto& s : shapes)
    check_all(conv2d_geometry(s[0], s[1], s[2], s[3], s[4], 3, 3, 1, s[5]),
              ConvAlgorithm::Winograd);
}

TEST_CASE("winograd with so many channels that threads share a block of tiles", "[conv]") {
  check_all(conv2d_geometry(1, 480, 4, 3, 496, 3, 3, 1, 1), ConvAlgorithm::Winograd);
  // Several blocks.
  check_all(conv2d_geometry(260, 480, 1, 1, 496, 3, 3, 1, 1), ConvAlgorithm::Winograd);
  check_all(conv2d_geometry(1, 480, 4, 3, 496, 3, 3, 2, 1), ConvAlgorithm::Winograd);
}

TEST_CASE("winograd 5x5, stride 1", "[quick][conv]") {
  const int64_t shapes[][6] = {{1, 1, 5, 5, 1, 2},     {2, 16, 8, 8, 32, 2}, {3, 20, 9, 6, 48, 2},
                               {1, 32, 14, 14, 64, 2}, {70, 3, 7, 6, 16, 0}, {2, 17, 6, 11, 5, 1},
                               {9, 20, 1, 9, 32, 2}};
  for (const auto& s : shapes)
    check_all(conv2d_geometry(s[0], s[1], s[2], s[3], s[4], 5, 5, 1, s[5]),
              ConvAlgorithm::Winograd);
}

TEST_CASE("winograd 3x3, stride 2", "[quick][conv]") {
  const int64_t shapes[][5] = {{1, 1, 4, 4, 1},     {1, 3, 5, 7, 16},   {2, 16, 8, 8, 32},
                               {3, 20, 9, 6, 48},   {5, 48, 13, 4, 20}, {2, 64, 16, 16, 64},
                               {1, 16, 24, 17, 64}, {4, 33, 7, 7, 3},   {2, 16, 15, 10, 16},
                               {1, 16, 1, 1, 16},   {1, 16, 2, 3, 16}};
  for (const auto& s : shapes)
    check_all(conv2d_geometry(s[0], s[1], s[2], s[3], s[4], 3, 3, 2, 1), ConvAlgorithm::Winograd);
}

TEST_CASE("direct convolutions", "[quick][conv]") {
  const int64_t shapes[][9] = {
      // n, c, h, w, k, r, s, stride, padding
      {2, 64, 8, 8, 48, 1, 1, 1, 0},  {3, 20, 9, 7, 64, 1, 1, 2, 0},
      {1, 16, 5, 5, 16, 1, 1, 2, 1},  {2, 16, 8, 8, 20, 3, 3, 1, 1},
      {2, 33, 9, 12, 16, 3, 3, 2, 1}, {1, 3, 24, 24, 48, 7, 7, 2, 3},
      {2, 5, 11, 9, 17, 5, 5, 1, 2},  {1, 16, 13, 10, 3, 3, 3, 3, 0},
      {2, 16, 6, 6, 16, 2, 2, 2, 0},  {1, 48, 4, 4, 32, 4, 4, 4, 0},
      {1, 20, 7, 9, 18, 1, 5, 1, 1},  {2, 16, 9, 7, 16, 5, 1, 2, 2},
      {1, 1, 28, 28, 32, 3, 3, 1, 1}, {1, 16, 6, 6, 16, 1, 1, 3, 0},
      {1, 8, 5, 6, 8, 3, 3, 2, 2},    {5, 16, 4, 17, 32, 3, 3, 2, 1},
      {1, 16, 5, 4, 128, 1, 1, 2, 0},
  };
  for (const auto& s : shapes)
    check_all(conv2d_geometry(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]),
              ConvAlgorithm::Direct);
}

// Covers products by pixels and by images, with fewer rows than a tile has and with one more.
// Covers whole and half panels, borders, bands, groups of images, and sums of all images at once.
// If the processor has tiles, they must give the bits of the emulated ones.
TEST_CASE("direct convolutions on tiles", "[quick][conv]") {
  const int64_t shapes[][9] = {// n, c, h, w, k, r, s, stride, padding
                               {1, 16, 8, 8, 16, 3, 3, 1, 1},   {2, 20, 5, 21, 48, 3, 3, 1, 1},
                               {17, 32, 4, 4, 64, 3, 3, 1, 1},  {33, 48, 3, 5, 32, 3, 3, 2, 1},
                               {8, 33, 9, 30, 16, 3, 3, 2, 1},  {20, 64, 6, 6, 32, 1, 1, 2, 0},
                               {5, 16, 14, 14, 32, 5, 5, 1, 2}, {12, 16, 9, 7, 16, 5, 1, 2, 2},
                               {10, 5, 7, 9, 18, 1, 5, 1, 1},   {8, 16, 6, 6, 16, 1, 1, 3, 0},
                               {9, 8, 5, 6, 8, 3, 3, 2, 2},     {2, 16, 40, 20, 16, 3, 3, 1, 1},
                               {34, 96, 2, 2, 96, 3, 3, 1, 1},  {3, 16, 13, 10, 3, 3, 3, 3, 0}};
  const Stream stream = pool_stream(2);
  for (const auto& s : shapes) {
    const Conv2dGeometry g = conv2d_geometry(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], s[8]);
    Outputs emulated;
    {
      const Using tiles(amx::Tiles::Emulated);
      check<bfloat16>(g, ConvAlgorithm::Direct);
      emulated = run<bfloat16>(stream, Problem(g), ConvAlgorithm::Direct, true);
    }
    if (!amx::why_no_tiles().empty()) continue;
    const Using tiles(amx::Tiles::Hardware);
    REQUIRE((run<bfloat16>(stream, Problem(g), ConvAlgorithm::Direct, true) == emulated));
  }
  if (!amx::why_no_tiles().empty())
    WARN("not tried on the processor's tiles: " << amx::why_no_tiles());
}

TEST_CASE("first layers read contiguous images", "[quick][threads][conv]") {
  const int64_t shapes[][8] = {{2, 3, 12, 9, 16, 3, 1, 1},
                               {3, 1, 28, 28, 20, 5, 1, 2},
                               {1, 3, 24, 21, 64, 7, 2, 3},
                               {2, 1, 8, 8, 32, 3, 1, 0},
                               {1, 20, 6, 7, 16, 3, 2, 1}};
  for (const auto& s : shapes) {
    const Problem p(conv2d_geometry(s[0], s[1], s[2], s[3], s[4], s[5], s[5], s[6], s[7]));
    const Conv2dGeometry& g = p.g;
    const References expected = references(p, true);
    Outputs previous;
    for (int threads : {1, 2, 3}) {
      const Stream stream = pool_stream(threads);
      std::vector<float> y(output_shape(g).numel());
      std::vector<float> dw(p.w.size());
      const auto dy = blocked(stream, p.dy, g.n, g.k, g.oh, g.ow);
      convolve_nchw(stream, g, p.x.data(), p.w.data(), p.bias.data(), y.data());
      weight_gradient_nchw(stream, g, p.x.data(), dy.data(), dw.data());
      REQUIRE(relative_error(contiguous(stream, y, g.n, g.k, g.oh, g.ow), expected.y) <
              tolerance<float>(g, ConvAlgorithm::Direct, g.c * g.r * g.s));
      REQUIRE(relative_error(dw, expected.dw) <
              tolerance<float>(g, ConvAlgorithm::Direct, g.n * g.oh * g.ow));
      REQUIRE(padding_is_zero(y, output_shape(g), g.k));
      if (threads > 1) REQUIRE((Outputs{y, {}, dw} == previous));
      previous = {y, {}, dw};
    }
  }
}

// For ThreadSanitizer, where the definition's loops take minutes: each way to share out a
// convolution, without them.
TEST_CASE("threads share out a convolution in every way", "[quick][threads][conv]") {
  const auto same_bits = []<class T>(const Conv2dGeometry& g, ConvAlgorithm way, T) {
    REQUIRE((run<T>(pool_stream(1), Problem(g), way, true) ==
             run<T>(pool_stream(3), Problem(g), way, true)));
  };
  same_bits(conv2d_geometry(9, 20, 9, 6, 48, 3, 3, 1, 1), ConvAlgorithm::Winograd, float{});
  // A block of tiles.
  same_bits(conv2d_geometry(1, 480, 4, 3, 496, 3, 3, 1, 1), ConvAlgorithm::Winograd, float{});
  same_bits(conv2d_geometry(5, 20, 9, 6, 48, 3, 3, 2, 1), ConvAlgorithm::Winograd, bfloat16{});
  same_bits(conv2d_geometry(5, 16, 9, 17, 20, 3, 3, 2, 1), ConvAlgorithm::Direct, float{});
  const Using tiles(amx::Tiles::Emulated);
  same_bits(conv2d_geometry(17, 32, 4, 4, 64, 3, 3, 1, 1), ConvAlgorithm::Direct, bfloat16{});
}

// As blocks, whose numbers the tests above prove: with vectors sums would have another order, and
// other last bits.
TEST_CASE("first layers on tiles", "[quick][conv]") {
  const Using tiles(amx::Tiles::Emulated);
  const int64_t shapes[][8] = {
      {9, 3, 12, 9, 16, 3, 1, 1}, {8, 1, 14, 14, 20, 5, 1, 2}, {2, 3, 24, 21, 33, 7, 2, 3}};
  for (const auto& s : shapes) {
    const Problem p(conv2d_geometry(s[0], s[1], s[2], s[3], s[4], s[5], s[5], s[6], s[7]));
    const Conv2dGeometry& g = p.g;
    const Conv2dOptions options{.stride = g.stride, .padding = g.padding};
    const Tensor x = in_dtype(tensor(p.x, {g.n, g.c, g.h, g.w}), DType::BFloat16);
    const Tensor w = tensor(p.w, {g.k, g.c, g.r, g.s});
    const Tensor dy = to_layout(in_dtype(tensor(p.dy, {g.n, g.k, g.oh, g.ow}), DType::BFloat16),
                                Layout::ChannelBlocked);
    const auto results = [&](const Tensor& images) {
      const Tensor y = empty_like(dy);
      const Tensor dw = empty_like(w);
      kernels::conv2d(y, images, in_dtype(w, x.dtype()), {}, options);
      kernels::conv2d_backward_weight(dw, dy, images, options);
      return std::pair(to_vector<double>(y), to_vector<double>(dw));
    };
    REQUIRE(results(x) == results(to_layout(x, Layout::ChannelBlocked)));
  }
}

TEST_CASE("an empty batch", "[quick][conv]") {
  const Stream stream = pool_stream(2);
  for (const int64_t channels : {16, 512})  // blocks of a thread's own, and shared ones
    for (ConvAlgorithm algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Winograd}) {
      const Conv2dGeometry g = conv2d_geometry(0, channels, 8, 8, channels, 3, 3, 1, 1);
      const std::vector<float> w(channels * channels * 9, 1);
      std::vector<float> dw(w.size(), 7);
      const ConvMethod method = method_of<float>(g, ConvPass::Forward, algorithm);
      convolve<float>(stream, g, method, Direction::Forward, nullptr, w.data(), nullptr, nullptr,
                      nullptr);
      convolve<float>(stream, g, method, Direction::BackwardInput, nullptr, w.data(), nullptr,
                      nullptr, nullptr);
      weight_gradient<float>(stream, g, method, nullptr, nullptr, dw.data());
      REQUIRE(dw == std::vector<float>(w.size(), 0));
    }
}

TEST_CASE("a NaN reaches the output", "[quick][conv]") {
  for (ConvAlgorithm algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Winograd}) {
    Problem p(conv2d_geometry(1, 16, 8, 8, 16, 3, 3, 1, 1));
    p.x[5] = std::numeric_limits<float>::quiet_NaN();
    const Outputs o = run<float>(pool_stream(1), p, algorithm, true);
    REQUIRE(std::isnan(o.y[5 * kChannelBlock]));
  }
}

TEST_CASE("a second step takes nothing from the system", "[quick][conv]") {
  for (ConvAlgorithm algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Winograd}) {
    const Problem p(conv2d_geometry(4, 32, 16, 16, 48, 3, 3, 2, 1));
    run<float>(pool_stream(3), p, algorithm, true);
    const int64_t misses = memory_stats("cpu").cache_misses;
    for (int i = 0; i < 5; ++i) run<float>(pool_stream(3), p, algorithm, true);
    REQUIRE(memory_stats("cpu").cache_misses == misses);
  }
}

TEST_CASE("layouts convert into each other", "[quick][conv]") {
  const int64_t shapes[][4] = {{1, 1, 1, 1},    {2, 16, 4, 4}, {3, 20, 5, 7},
                               {2, 48, 24, 13}, {0, 16, 4, 4}, {1, 15, 40, 40}};
  for (const auto& s : shapes) {
    const auto nchw = random_values(s[0] * s[1] * s[2] * s[3], 7);
    const auto image = blocked(pool_stream(3), nchw, s[0], s[1], s[2], s[3]);
    REQUIRE(padding_is_zero(image, {s[0], channel_blocks(s[1]), s[2], s[3]}, s[1]));
    for (int64_t n = 0; n < s[0]; ++n)
      for (int64_t c = 0; c < s[1]; ++c)
        for (int64_t i = 0; i < s[2] * s[3]; ++i)
          REQUIRE(image[((n * channel_blocks(s[1]) + c / 16) * s[2] * s[3] + i) * 16 + c % 16] ==
                  nchw[(n * s[1] + c) * s[2] * s[3] + i]);
    REQUIRE(contiguous(pool_stream(3), image, s[0], s[1], s[2], s[3]) == nchw);
  }
}

TEST_CASE("conv2d_geometry refuses what does not fit", "[quick][conv]") {
  REQUIRE(conv2d_geometry(1, 3, 32, 30, 64, 7, 7, 2, 3).oh == 16);
  REQUIRE_THROWS_AS(conv2d_geometry(1, 0, 8, 8, 16, 3, 3, 1, 1), ShapeError);
  REQUIRE_THROWS_AS(conv2d_geometry(1, 16, 8, 8, 16, 3, 3, 0, 1), ShapeError);
  REQUIRE_THROWS_AS(conv2d_geometry(1, 16, 2, 8, 16, 5, 5, 1, 1), ShapeError);
}

}  // namespace ringgrad::test::conv_kernels_test
