// Convolutions on the CPU and their gradients against the sums that define them, in double.
#include <functional>
#include <random>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/cpu/conv/plan.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test::cpu_conv2d_test {

namespace {

struct Case {
  int64_t n;
  int64_t c;
  int64_t h;
  int64_t w;
  int64_t k;
  int64_t r;
  int64_t s;
  Conv2dOptions options = {};
};

struct Reference {
  std::vector<double> y;
  std::vector<double> dx;
  std::vector<double> dw;
  // of the longest sum of each
  int64_t terms_y;
  int64_t terms_dx;
  int64_t terms_dw;
};

// Each product of the definition contributes to one element of y, of dx and of dw. To dx, x itself
// is added.
Reference reference(const Case& t, int64_t p, int64_t q, const Tensor& x, const Tensor& w,
                    const Tensor& b, const Tensor& dy) {
  const Conv2dOptions& o = t.options;
  const int64_t c_group = t.c / o.groups;
  const int64_t k_group = t.k / o.groups;
  const std::vector<double> vx = values(x);
  const std::vector<double> vw = values(w);
  const std::vector<double> vb = values(b);
  const std::vector<double> vdy = values(dy);
  Reference ref{std::vector<double>(vdy.size()), vx,
                std::vector<double>(vw.size()),  c_group * t.r * t.s + 1,
                k_group * t.r * t.s + 1,         t.n * p * q};
  for (int64_t n = 0; n < t.n; ++n)
    for (int64_t k = 0; k < t.k; ++k)
      for (int64_t i = 0; i < p; ++i)
        for (int64_t j = 0; j < q; ++j) {
          const int64_t at_y = ((n * t.k + k) * p + i) * q + j;
          ref.y[at_y] += vb[k];
          for (int64_t c = 0; c < c_group; ++c)
            for (int64_t r = 0; r < t.r; ++r)
              for (int64_t s = 0; s < t.s; ++s) {
                const int64_t h = i * o.stride.h + r * o.dilation.h - o.padding.h;
                const int64_t v = j * o.stride.w + s * o.dilation.w - o.padding.w;
                if (h < 0 || h >= t.h || v < 0 || v >= t.w) continue;
                const int64_t at_x = ((n * t.c + k / k_group * c_group + c) * t.h + h) * t.w + v;
                const int64_t at_w = ((k * c_group + c) * t.r + r) * t.s + s;
                ref.y[at_y] += vx[at_x] * vw[at_w];
                ref.dx[at_x] += vdy[at_y] * vw[at_w];
                ref.dw[at_w] += vdy[at_y] * vx[at_x];
              }
        }
  return ref;
}

void check_conv(const Case& t, DType dtype, Layout layout = Layout::Strided) {
  const Conv2dOptions& o = t.options;
  const int64_t p = o.out_h(t.h, t.r);
  const int64_t q = o.out_w(t.w, t.s);
  const Shape x_shape{t.n, t.c, t.h, t.w};
  const Shape w_shape{t.k, t.c / o.groups, t.r, t.s};
  INFO("x " << x_shape << ", w " << w_shape << ", stride " << o.stride.h << ", padding "
            << o.padding.h << ", dilation " << o.dilation.h << ", groups " << o.groups << ", "
            << dtype);
  const Tensor x = random_tensor(x_shape, dtype, 1);
  const Tensor w = random_tensor(w_shape, dtype, 2);
  const Tensor b = random_tensor({t.k}, dtype, 3);
  const Tensor dy = random_tensor({t.n, t.k, p, q}, dtype, 4);
  const Tensor y = empty(dy.shape(), {dtype, {}, layout});
  const Tensor dx = empty(x.shape(), y.options());
  const Tensor dw = empty(w.shape(), {.dtype = dtype});
  const Tensor images = empty(x.shape(), y.options());
  const Tensor grads = empty(dy.shape(), y.options());
  kernels::copy(images, x);
  kernels::copy(grads, dy);
  kernels::conv2d(y, images, w, b, o);
  kernels::conv2d_backward_input(dx, grads, w, images, o);
  kernels::conv2d_backward_weight(dw, grads, images, o);
  const Reference ref = reference(t, p, q, x, w, b, dy);
  const Reference magnitudes =
      reference(t, p, q, absolute(x), absolute(w), absolute(b), absolute(dy));
  require_within(y, ref.y, sum_bounds(dtype, ref.terms_y, magnitudes.y));
  require_within(dx, ref.dx, sum_bounds(dtype, ref.terms_dx, magnitudes.dx));
  require_within(dw, ref.dw, sum_bounds(dtype, ref.terms_dw, magnitudes.dw));
}

}  // namespace

TEST_CASE("conv2d with every kind of window", "[quick][cpu]") {
  for (int64_t stride : {1, 2, 3})
    for (int64_t padding : {0, 1, 2, 4})
      for (int64_t dilation : {1, 2})
        for (int64_t kernel : {1, 3})
          check_conv({2,
                      4,
                      9,
                      7,
                      6,
                      kernel,
                      kernel,
                      {.stride = stride, .padding = padding, .dilation = dilation, .groups = 2}},
                     DType::Float32);
  for (DType dtype : kFloating) {
    check_conv({3, 3, 8, 10, 5, 3, 2, {.stride = {2, 1}, .padding = {0, 1}, .dilation = {1, 3}}},
               dtype);
    check_conv({2, 5, 6, 6, 4, 1, 1}, dtype);
    check_conv({2, 6, 5, 5, 6, 3, 3, {.padding = 1, .groups = 6}}, dtype);
  }
}

// Small whole numbers, whose sums no dtype rounds: direct products are exact.
namespace {

using Between = std::function<int64_t(int64_t low, int64_t high)>;

// Uses channel-blocked images of whole numbers, whose sums are exact without Winograd's algorithms.
void check_whole_numbers(const Case& t, DType dtype, const Between& from) {
  const auto whole_numbers = [&](const Shape& shape) {
    std::vector<double> numbers(shape.numel());
    for (double& number : numbers) number = static_cast<double>(from(-1, 1));
    const Tensor x = empty(shape, {.dtype = dtype});
    kernels::copy(x, tensor(numbers, shape));
    return x;
  };
  const auto blocked = [](const Tensor& x) {
    const Tensor images = empty(x.shape(), {x.dtype(), x.device(), Layout::ChannelBlocked});
    kernels::copy(images, x);
    return images;
  };
  const Conv2dOptions& o = t.options;
  const int64_t p = o.out_h(t.h, t.r);
  const int64_t q = o.out_w(t.w, t.s);
  const Tensor x = whole_numbers({t.n, t.c, t.h, t.w});
  const Tensor w = whole_numbers({t.k, t.c / o.groups, t.r, t.s});
  const Tensor b = whole_numbers({t.k});
  const Tensor dy = whole_numbers({t.n, t.k, p, q});
  INFO("x " << x.shape() << ", w " << w.shape() << ", stride " << o.stride.h << ", padding "
            << o.padding.h << " " << o.padding.w << ", dilation " << o.dilation.h << " "
            << o.dilation.w << ", groups " << o.groups << ", " << dtype);
  const Reference ref = reference(t, p, q, x, w, b, dy);
  const Tensor images = blocked(x);
  const Tensor grads = blocked(dy);
  const Tensor y = blocked(dy);
  const Tensor dx = blocked(x);
  const Tensor dw = empty(w.shape(), {.dtype = DType::Float32});
  for (const ConvAlgorithm algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Auto}) {
    set_conv_algorithm(algorithm);
    kernels::conv2d(y, images, w, b, o);
    kernels::conv2d_backward_input(dx, grads, w, images, o);
    kernels::conv2d_backward_weight(dw, grads, images, o);
    set_conv_algorithm(ConvAlgorithm::Auto);
    // Winograd's algorithms cost bfloat16 1 % of a sum's root mean square, of which six times are
    // allowed; the products' is 4/9.
    const auto tolerance = [&](int64_t terms) {
      if (algorithm == ConvAlgorithm::Direct) return 0.0;
      return dtype == DType::Float32 ? 1e-4 : 0.04 * std::sqrt(static_cast<double>(terms));
    };
    require_close(y, ref.y, tolerance(ref.terms_y));
    require_close(dx, ref.dx, tolerance(ref.terms_dx));
    require_close(dw, ref.dw, tolerance(ref.terms_dw));
  }
}

}  // namespace

TEST_CASE("conv2d with dilation, as that of sub-images", "[quick][cpu]") {
  std::mt19937 generator(11);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int done = 0; done < 40;) {
    const Pair dilation = {from(1, 4), from(2, 5)};
    const int64_t r = from(2, 4);
    const int64_t s = from(2, 4);
    const Case t = {
        from(1, 2),  from(16, 34),
        from(1, 12), from(1, 12),
        from(1, 34), r,
        s,           {.padding = {from(0, dilation.h), from(0, dilation.w)}, .dilation = dilation}};
    if (t.options.out_h(t.h, r) < 1 || t.options.out_w(t.w, s) < 1) continue;
    check_whole_numbers(t, done++ % 2 ? DType::BFloat16 : DType::Float32, from);
  }
}

TEST_CASE("conv2d with groups of whole blocks of channels, as that of each", "[quick][cpu]") {
  std::mt19937 generator(12);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int done = 0; done < 24;) {
    const int64_t groups = from(2, 3);
    const int64_t r = from(1, 3);
    const Case t = {from(1, 3),
                    16 * groups * from(1, 2),
                    from(1, 9),
                    from(1, 9),
                    16 * groups * from(1, 2),
                    r,
                    r,
                    {.stride = from(1, 2), .padding = from(0, 1), .groups = groups}};
    if (std::min(t.h, t.w) + 2 * t.options.padding.h < r) continue;
    check_whole_numbers(t, done++ % 2 ? DType::BFloat16 : DType::Float32, from);
  }
}

TEST_CASE("conv_transpose2d with dilation, from many channels to few", "[quick][cpu]") {
  const auto run = [](DType dtype) {
    std::vector<Tensor> all;
    for (const auto& [shape, seed] : {std::pair{Shape{2, 18, 8, 9}, 1}, {Shape{18, 3, 3, 3}, 2}})
      all.push_back(random_tensor(shape, dtype, seed).set_requires_grad());
    const Tensor y = conv_transpose2d(all[0], all[1], {}, {.padding = 1, .dilation = 2});
    sum(y * y).backward();
    return std::vector{y.detach(), all[0].grad(), all[1].grad()};
  };
  const std::vector<Tensor> found = run(DType::Float32);
  const std::vector<Tensor> want = run(DType::Float64);
  for (size_t i = 0; i < want.size(); ++i) require_close(found[i], values(want[i]), 1e-4);
}

TEST_CASE("conv2d of large and of many small images", "[quick][cpu]") {
  // Several strips of an image.
  check_conv({1, 20, 130, 37, 18, 3, 3, {.padding = 1}}, DType::Float32);
  check_conv({37, 3, 4, 4, 5, 3, 3, {.padding = 1}}, DType::Float32);
  // One output pixel, several sums of at most 128 channels.
  check_conv({21, 130, 3, 3, 3, 3, 3}, DType::Float32);
  // Panels of filters.
  check_conv({2, 140, 6, 7, 37, 3, 3, {.stride = 2, .padding = 2, .dilation = 2}}, DType::Float32);
  check_conv({9, 7, 20, 20, 3, 1, 1}, DType::Float32);
  check_conv({1, 1, 3, 200, 2, 1, 5, {.padding = {0, 2}}}, DType::Float32);
}

TEST_CASE("conv2d uses nothing that it reads beyond its numbers", "[quick][cpu]") {
  std::vector<Tensor> freed;  // for kernels to find NaN in what they do not write
  for (int64_t bytes = 64; bytes <= 1 << 22; bytes *= 2) freed.push_back(full({bytes / 4}, NAN));
  freed.clear();
  check_conv({2, 6, 9, 7, 10, 3, 3, {.stride = 2, .padding = 1, .groups = 2}}, DType::Float32);
  check_conv({2, 5, 6, 5, 3, 2, 3}, DType::Float32);
}

TEST_CASE("depthwise conv2d with every kind of window", "[quick][cpu]") {
  std::mt19937 generator(7);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int done = 0; done < 150;) {
    const int64_t groups = from(1, 5);
    const int64_t filters = groups * from(1, 3);
    const int64_t r = from(1, 9);
    const int64_t s = from(1, 9);
    const Pair stride = {from(1, 3), from(1, 3)};
    const Pair padding = {from(0, 5), from(0, 5)};
    const Pair dilation = {from(1, 3), from(1, 3)};
    const Case t = {from(1, 3),
                    groups,
                    from(1, 30),
                    from(1, 40),
                    filters,
                    r,
                    s,
                    {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups}};
    if (t.options.out_h(t.h, r) < 1 || t.options.out_w(t.w, s) < 1) continue;
    check_conv(t, kFloating[done++ % kFloating.size()]);
  }
}

TEST_CASE("depthwise conv2d of channel-blocked images with every kind of window", "[quick][cpu]") {
  std::mt19937 generator(8);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int done = 0; done < 150;) {
    const int64_t groups = from(16, 40);
    const int64_t r = from(1, 9);
    const int64_t s = from(1, 9);
    const Pair stride = {from(1, 3), from(1, 3)};
    const Pair padding = {from(0, 5), from(0, 5)};
    const Pair dilation = {from(1, 2), from(1, 2)};
    const Case t = {from(1, 3),
                    groups,
                    from(1, 20),
                    from(1, 24),
                    groups,
                    r,
                    s,
                    {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups}};
    const ConvProblem problem{.x = {t.n, t.c, t.h, t.w},
                              .w = {groups, 1, r, s},
                              .options = t.options,
                              .x_layout = Layout::ChannelBlocked};
    if (t.options.out_h(t.h, r) < 1 || t.options.out_w(t.w, s) < 1) continue;
    if (conv::plan(problem).method != ConvMethod::DepthwiseBlocked) continue;
    check_conv(t, done++ % 3 ? DType::Float32 : DType::BFloat16, Layout::ChannelBlocked);
  }
  // Strips of a plane; sums of more than kMaxTerms.
  constexpr auto kBlocked = Layout::ChannelBlocked;
  check_conv({2, 17, 70, 90, 17, 3, 3, {.padding = 1, .groups = 17}}, DType::Float32, kBlocked);
  check_conv({1, 16, 90, 95, 16, 5, 5, {.stride = 2, .padding = 2, .groups = 16}}, DType::BFloat16,
             kBlocked);
  check_conv({1, 16, 101, 90, 16, 4, 3, {.stride = 3, .padding = 1, .groups = 16}}, DType::Float32,
             kBlocked);
}

TEST_CASE("depthwise conv2d of large and of small planes", "[quick][cpu]") {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    StreamGuard stream(Stream{Device(), &pool});
    // Pieces down and across.
    check_conv({1, 2, 70, 300, 2, 3, 3, {.padding = 1, .groups = 2}}, DType::Float32);
    check_conv({1, 2, 70, 300, 4, 5, 2, {.stride = 2, .padding = 2, .groups = 2}}, DType::Float32);
    check_conv({1, 3, 1, 9000, 3, 1, 31, {.padding = {0, 15}, .groups = 3}}, DType::Float32);
    check_conv({3, 70, 1, 1, 70, 7, 7, {.padding = 3, .groups = 70}}, DType::Float32);
    // A case of im2col, as is the next.
    check_conv({2, 2, 40, 40, 2, 2, 2, {.stride = 30, .groups = 2}}, DType::Float32);
    check_conv({1, 2, 90, 90, 2, 2, 2, {.padding = 60, .dilation = 120, .groups = 2}},
               DType::Float32);
  }
}

TEST_CASE("depthwise weight gradients have the same bits with any number of threads",
          "[quick][cpu]") {
  const auto layout = GENERATE(Layout::Strided, Layout::ChannelBlocked);
  const int64_t channels = layout == Layout::Strided ? 3 : 19;
  const Shape shape = {5, channels, 90, 110};
  const Tensor x = to_layout(random_tensor(shape, DType::Float32, 1), layout);
  const Tensor dy = to_layout(random_tensor(shape, DType::Float32, 2), layout);
  std::vector<std::vector<float>> all;
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    StreamGuard stream(Stream{Device(), &pool});
    const Tensor dw = empty({channels, 1, 3, 3});
    kernels::conv2d_backward_weight(dw, dy, x, {.padding = 1, .groups = channels});
    all.push_back(to_vector<float>(dw));
  }
  CHECK(all[1] == all[0]);
  CHECK(all[2] == all[0]);
}

TEST_CASE("a tap of a depthwise convolution that sees no infinity has a finite gradient",
          "[quick][cpu]") {
  std::vector<float> pixels(12, 1.0f);
  pixels[11] = INFINITY;
  const Tensor x = tensor(pixels, {1, 1, 1, 12});
  const Tensor dy = full({1, 1, 1, 10}, 1);
  const Tensor dw = empty({1, 1, 1, 3});
  kernels::conv2d_backward_weight(dw, dy, x, {});
  require_close(dw, {10, 10, INFINITY}, 0);
  const Shape blocked = {1, 16, 1, 12};
  const Tensor many = empty({16, 1, 1, 3});
  kernels::conv2d_backward_weight(many, to_layout(full({1, 16, 1, 10}, 1), Layout::ChannelBlocked),
                                  to_layout(contiguous(expand(x, blocked)), Layout::ChannelBlocked),
                                  {.groups = 16});
  for (int64_t channel = 0; channel < 16; ++channel)
    require_close(select(many, 0, channel), {10, 10, INFINITY}, 0);
}

TEST_CASE("conv2d of nothing", "[quick][cpu]") {
  check_conv({0, 3, 5, 5, 4, 3, 3}, DType::Float32);
  check_conv({2, 3, 5, 5, 0, 3, 3}, DType::Float32);
  check_conv({2, 0, 5, 5, 4, 3, 3}, DType::Float32);
  check_conv({1, 2, 9, 8, 3, 2, 1, {.stride = 3}}, DType::Float32);  // pixels that no window sees
}

TEST_CASE("the gradient of what meets only padding is 0, whatever memory held before",
          "[quick][cpu]") {
  const Conv2dOptions options{.stride = 2, .padding = 1};
  const auto provider = GENERATE(Provider::Native, Provider::Vendor);
  const auto layout = GENERATE(Layout::Strided, Layout::ChannelBlocked);
  const bool tall = GENERATE(false, true);
  for (const int threads : {1, 2, 3}) {
    INFO(static_cast<int>(provider)
         << " " << name(layout) << " tall " << tall << " threads " << threads);
    ThreadPool pool(threads);
    StreamGuard stream(Stream{Device(), &pool});
    ProviderGuard guard(provider);
    std::vector<Tensor> freed;  // for kernels to find NaN in what they do not write
    for (int64_t bytes = 64; bytes <= 1 << 22; bytes *= 2) freed.push_back(full({bytes / 4}, NAN));
    freed.clear();
    const Tensor x =
        full(tall ? Shape{1, 16, 6, 1} : Shape{1, 16, 1, 6}, 1, {DType::BFloat16, {}, layout});
    const Tensor dy =
        full(tall ? Shape{1, 16, 3, 1} : Shape{1, 16, 1, 3}, 1, {DType::BFloat16, {}, layout});
    const Tensor dw = empty({16, 16, 3, 3}, {DType::BFloat16});
    kernels::conv2d_backward_weight(dw, dy, x, options);
    // The numbers of windows that each of three pixels in a column meets. The pixels beside them
    // meet none.
    const std::vector<double> met = tall ? std::vector<double>{0, 2, 0, 0, 3, 0, 0, 3, 0}
                                         : std::vector<double>{0, 0, 0, 2, 3, 3, 0, 0, 0};
    std::vector<double> expected;
    for (int k = 0; k < 256; ++k) expected.insert(expected.end(), met.begin(), met.end());
    require_close(dw, expected, 0);
  }
}

}  // namespace ringgrad::test::cpu_conv2d_test
