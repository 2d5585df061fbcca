// Layouts propagate: a convolution picks the one that suits its device, and later operations keep
// it.
#include <cmath>
#include <limits>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/random.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::layout_test {

namespace {

Tensor random(const Shape& shape, DType dtype = DType::Float32) {
  const Tensor x = empty(shape);
  normal_(x, 0, 1);
  return to(x, dtype).detach();
}

}  // namespace

TEST_CASE("from the first convolution to the last pooling images stay channel-blocked",
          "[quick][layout]") {
  const Tensor image = random({2, 3, 12, 12});
  const Tensor w1 = random({20, 3, 3, 3});
  const Tensor w2 = random({20, 20, 3, 3});
  for (const Tensor* w : {&w1, &w2}) w->set_requires_grad();
  const Tensor first = conv2d(image, w1, {}, {.padding = 1});
  const Tensor normal = batch_norm(first, {}, {}, {}, {}, {.activation = Activation::Relu});
  const Tensor quarter = batch_norm(first, {}, {}, {}, {}, {.max_pool = 2});
  const Tensor second = conv2d(normal, w2, {}, {.padding = 1});
  const Tensor joined = relu(add(second, normal));
  const Tensor pooled = adaptive_avg_pool2d(avg_pool2d(max_pool2d(joined, {}), {}), 1);
  for (const Tensor* x : {&first, &normal, &quarter, &second, &joined, &pooled})
    CHECK(x->layout() == Layout::ChannelBlocked);
  const Tensor flat = flatten(pooled, 1);
  CHECK(flat.layout() == Layout::Strided);
  mean(flat).backward();
  CHECK(w1.grad().is_contiguous());
  CHECK(std::isfinite(mean(w1.grad()).item<float>()));
}

TEST_CASE("what keeps zeros keeps images channel-blocked", "[quick][layout]") {
  const Tensor x = to_layout(random({2, 20, 3, 5}), Layout::ChannelBlocked);
  CHECK(clamp(x, 0, 6).layout() == Layout::ChannelBlocked);
  CHECK(clamp(x, -2, -0.0).layout() == Layout::ChannelBlocked);
  CHECK(clamp(x, 1, 6).layout() == Layout::Strided);
  CHECK(clamp(x, -6, -1).layout() == Layout::Strided);
  // A number for each channel, or for each channel and image.
  for (const Shape& shape : {Shape{20, 1, 1}, Shape{1, 20, 1, 1}, Shape{2, 20, 1, 1}}) {
    const Tensor numbers = random(shape);
    for (const Tensor& y :
         {x * numbers, numbers * x, x + numbers, numbers - x, maximum(x, numbers)})
      CHECK(y.layout() == Layout::ChannelBlocked);
    CHECK((x / numbers).layout() == Layout::Strided);
  }
  CHECK(prelu(x, random({20, 1, 1})).layout() == Layout::ChannelBlocked);
  CHECK((x * random({2, 1, 3, 5})).layout() == Layout::Strided);
  CHECK((x + random({1, 1, 1})).layout() == Layout::Strided);
  for (const UpsampleMode mode : {UpsampleMode::Nearest, UpsampleMode::Bilinear})
    CHECK(upsample(x, {7, 9}, {.mode = mode}).layout() == Layout::ChannelBlocked);
}

// The expected values are those of the same images in the strided layout, with their gradients.
TEST_CASE("images are joined along their channels in the layout that they have",
          "[quick][layout]") {
  const auto dtype = GENERATE(DType::Float32, DType::BFloat16, DType::Float64);
  // Pieces that fill their blocks, begin amid one, end with one, and lie within one.
  for (const std::vector<int64_t>& pieces : std::vector<std::vector<int64_t>>{
           {16, 32, 16}, {32, 5}, {5, 32}, {12, 4, 20}, {58, 58}, {3, 2, 4}, {31, 1, 17, 40}}) {
    CAPTURE(pieces, dtype);
    std::vector<Tensor> strided;
    std::vector<Tensor> blocked;
    std::vector<Tensor> blocked_leaves;
    int64_t all = 0;
    for (const int64_t channels : pieces) {
      strided.push_back(random({2, channels, 5, 7}, dtype).set_requires_grad());
      blocked_leaves.push_back(clone(strided.back()).detach().set_requires_grad());
      blocked.push_back(to_layout(blocked_leaves.back(), Layout::ChannelBlocked));
      all += channels;
    }
    const Tensor want = cat(strided, 1);
    const Tensor found = cat(blocked, 1);
    CHECK(found.layout() == Layout::ChannelBlocked);
    CHECK(to_vector<double>(found) == to_vector<double>(want));
    // The places beside the channels have only zeros.
    CHECK(sum(to(ne(memory_of(found.detach()), 0.0), DType::Int64)).item<int64_t>() ==
          want.numel());
    const Tensor grad = random({2, all, 5, 7}, dtype);
    want.backward(grad);
    found.backward(grad);
    for (size_t i = 0; i < strided.size(); ++i)
      CHECK(to_vector<double>(blocked_leaves[i].grad()) == to_vector<double>(strided[i].grad()));
  }
  // If only one of the images is blocked, or along another dimension, the result is strided.
  const Tensor x = random({2, 16, 3, 3});
  const Tensor y = to_layout(x, Layout::ChannelBlocked);
  CHECK(cat({x, y}, 1).layout() == Layout::Strided);
  CHECK(cat({y, y}, 2).layout() == Layout::Strided);
  const Tensor one = to_layout(ones({1, 1, 1, 1}), Layout::ChannelBlocked);
  CHECK(cat({one, one}, 1).layout() == Layout::ChannelBlocked);
  CHECK(to_vector<float>(cat({y, y}, 0)) == to_vector<float>(cat({x, x}, 0)));
}

// Parts of images, whose planes are contiguous, and whose other strides are not.
TEST_CASE("parts of images become channel-blocked, and strided again", "[quick][layout]") {
  const auto dtype =
      GENERATE(DType::Float32, DType::BFloat16, DType::Float16, DType::Float64, DType::Int32);
  const Tensor all = to(random({3, 50, 5, 7}) * 100.0, dtype);
  for (const auto& [begin, end] : {std::pair{0, 32}, {7, 41}, {49, 50}})
    for (const Tensor& x : {slice(all, 1, begin, end), slice(all, 2, begin % 3, 4),
                            transpose(slice(all, 1, begin, end), 2, 3)}) {
      const Tensor images = empty(x.shape(), {dtype, {}, Layout::ChannelBlocked});
      kernels::copy(images, x);
      const Tensor wider = zeros({x.size(0), x.size(1) + 3, x.size(2), x.size(3)}, {dtype});
      const Tensor back = slice(wider, 1, 2, 2 + x.size(1));
      kernels::copy(back, images);
      CHECK(to_vector<double>(back) == to_vector<double>(x));
      CHECK(to_vector<double>(select(wider, 1, 1)) ==
            std::vector<double>(x.numel() / x.size(1), 0.0));
    }
}

TEST_CASE("convolutions without fast kernels take strided images", "[quick][layout]") {
  const Tensor x = random({1, 16, 8, 8});
  const Tensor w = random({16, 16, 3, 3});
  CHECK(conv2d(x, w, {}, {.padding = 2, .dilation = 2}).layout() == Layout::ChannelBlocked);
  CHECK(conv2d(x, w, {}, {.stride = 2, .dilation = 2}).layout() == Layout::Strided);
  // Sub-images of 2 x 2.
  CHECK(conv2d(x, w, {}, {.padding = 4, .dilation = 4}).layout() == Layout::Strided);
  CHECK(conv2d(x, w, {}, {.stride = {1, 2}}).layout() == Layout::Strided);
  CHECK(conv2d(to(x, DType::Float64), to(w, DType::Float64)).layout() == Layout::Strided);
  const Tensor blocked = conv2d(x, w);
  CHECK(conv2d(blocked, random({16, 8, 3, 3}), {}, {.groups = 2}).layout() == Layout::Strided);
  const Tensor each = random({16, 1, 3, 3});
  CHECK(conv2d(blocked, each, {}, {.groups = 16}).layout() == Layout::ChannelBlocked);
}

TEST_CASE("the gradient of a leaf is strided, however its consumers read it", "[quick][layout]") {
  for (const int64_t channels : {3, 16}) {
    const Tensor x = random({2, channels, 6, 6}).set_requires_grad();
    mean(conv2d(x, random({16, channels, 3, 3}))).backward();
    CHECK(x.grad().is_contiguous());
  }
}

TEST_CASE("to the strided layout is to a contiguous one", "[quick][layout]") {
  const Tensor x = random({2, 3}).set_requires_grad();
  const Tensor y = to_layout(transpose(x, 0, 1), Layout::Strided);
  CHECK(y.is_contiguous());
  CHECK(to_layout(y, Layout::Strided).is_same(y));
  sum(y).backward();
  CHECK(to_vector<float>(x.grad()) == std::vector<float>(6, 1));
}

TEST_CASE("an infinite slope does not reach the padding of channel-blocked memory",
          "[quick][layout]") {
  const Tensor x = random({2, 3, 4, 4}).set_requires_grad();
  const Tensor y = leaky_relu(to_layout(x, Layout::ChannelBlocked), INFINITY);
  CHECK(!y.is_channel_blocked());  // which has places for zeros, and 0 · inf is none
  sum(y).backward();
  for (const float slope : to_vector<float>(x.grad())) CHECK((slope == 1 || slope == INFINITY));
}

TEST_CASE("an infinite factor does not reach the padding of channel-blocked memory",
          "[quick][layout]") {
  const Tensor x = to_layout(ones({1, 3, 2, 2}), Layout::ChannelBlocked);
  for (const Tensor& y : {mul(x, INFINITY), div(x, 0.0), mul(x, 1e300), leaky_relu(x, 1e300)})
    CHECK(!y.is_channel_blocked());
  CHECK(mul(x, 2).is_channel_blocked());
}

TEST_CASE("16-bit images and float32 parameters", "[quick][layout]") {
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const Tensor x = random({2, 16, 6, 6}, dtype).set_requires_grad();
    const Tensor w = random({16, 16, 3, 3}).set_requires_grad();
    const Tensor b = random({16}).set_requires_grad();
    const Tensor y = conv2d(x, w, b);
    CHECK(y.dtype() == dtype);
    mean(y).backward();
    CHECK(x.grad().dtype() == dtype);
    CHECK(w.grad().dtype() == DType::Float32);
    CHECK(b.grad().dtype() == DType::Float32);
    CHECK(std::abs(to_vector<float>(b.grad())[3] - 1.0f / 16) < 1e-3f);
  }
}

// From two million numbers on channel-blocked outputs bypass the caches; those of other layouts
// never do, whose pixels may begin anywhere.
TEST_CASE("batch norm of large batches is the same in every layout", "[quick][layout]") {
  for (const Shape& shape : {Shape{33, 16, 64, 64}, Shape{66000, 40, 1, 1}}) {
    const Tensor values = random(shape);
    const Tensor others = random(shape);
    const Tensor dy = random(shape);
    const auto results = [&](Layout layout) {
      const Tensor x = values.detach().set_requires_grad();
      const Tensor residual = others.detach().set_requires_grad();
      const auto laid = [&](const Tensor& t) {
        return layout == Layout::Strided && shape[2] == 1 ? flatten(t, 1) : to_layout(t, layout);
      };
      const Tensor y = batch_norm(laid(x), {}, {}, {}, {}, {.residual = laid(residual)});
      sum(mul(y, laid(dy))).backward();
      return std::array{to_vector<float>(y), to_vector<float>(x.grad()),
                        to_vector<float>(residual.grad())};
    };
    const auto blocked = results(Layout::ChannelBlocked);
    const auto strided = results(Layout::Strided);
    for (size_t of = 0; of < blocked.size(); ++of) {
      float apart = 0;
      for (size_t i = 0; i < blocked[of].size(); ++i)
        apart = std::max(apart, std::abs(blocked[of][i] - strided[of][i]));
      CHECK(apart < 1e-4f);  // for numbers up to 10, and sums in different orders
    }
  }
}

TEST_CASE("what is not a number reaches the outputs of a convolution, and only those of its image",
          "[quick][layout]") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const Tensor x = random({2, 16, 9, 9});
    const Tensor w = random({16, 16, 3, 3});
    x.data<float>()[(3 * 9 + 4) * 9 + 4] = bad;  // image 0, channel 3, pixel (4, 4)
    const Tensor y = as_contiguous(conv2d(x, w, {}, {.padding = 1}));
    for (int64_t k = 0; k < 16; ++k) {
      CHECK(!std::isfinite(y.data<float>()[(k * 9 + 4) * 9 + 4]));
      for (int64_t i = 0; i < 81; ++i) REQUIRE(std::isfinite(y.data<float>()[(16 + k) * 81 + i]));
    }
  }
}

}  // namespace ringgrad::test::layout_test
