// Operations made of others refuse what does not fit, and say what would.
#include <functional>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/recurrent_ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::refused_ops_test {

TEST_CASE("composed operations refuse what does not fit, and say what would", "[quick]") {
  const Tensor x = zeros({2, 6});
  const Tensor image = zeros({1, 4, 5});
  const Tensor none;
  const auto index = [](std::vector<int64_t> values) { return tensor(values); };
  require_error<IndexError>("narrow: 3 elements from 4 on along dimension 1 of shape [2, 6]",
                            [&] { narrow(x, 1, 4, 3); });
  require_error<ShapeError>("split: the sizes add up to 5, dimension 1 of shape [2, 6] has 6", [&] {
    split(x, std::vector<int64_t>{2, 3}, 1);
  });
  require_error<IndexError>("narrow: -1 elements from 0 on", [&] { narrow(x, 1, 0, -1); });
  require_error<IndexError>("narrow: 2 elements from -7 on", [&] { narrow(x, 1, -7, 2); });
  require_error<IndexError>("select: place -7 of dimension 1", [&] { select(x, 1, -7); });
  require_error<ShapeError>("repeat: [1, -1] has a negative number", [&] { x.repeat({1, -1}); });
  require_error<Error>("roll: 2 shifts without dimensions", [&] { roll(x, {1, 2}, {}); });
  require_error<Error>("meshgrid: the list of tensors is empty", [] { meshgrid({}); });
  require_error<Error>("split: the size of a part is 0, expected at least 1", [&] { x.split(0); });
  require_error<Error>("chunk: 0 parts, expected at least 1", [&] { x.chunk(0); });
  require_error<ShapeError>("repeat: [2] has fewer numbers than shape [2, 6] dimensions",
                            [&] { x.repeat({2}); });
  require_error<ShapeError>("tril: shape [3], expected at least two dimensions",
                            [] { tril(zeros({3})); });
  require_error<ShapeError>(
      "view: a tensor of shape [6, 2] with strides [1, 6] cannot be seen with shape [12]",
      [&] { x.t().view({12}); });
  require_error<ShapeError>("t: shape [1, 4, 5], expected at most two dimensions",
                            [&] { image.t(); });
  require_error<IndexError>("topk: k is 7, expected 0 to 6, the size of dimension 1",
                            [&] { x.topk(7); });
  require_error<ShapeError>("scatter_add: the values have shape [1], expected [2]", [&] {
    scatter_add(zeros({3}), 0, index({0, 1}), zeros({1}));
  });
  require_error<IndexError>("scatter_add: element 1 of the index is 3, expected 0 to 2", [&] {
    scatter_add(zeros({3}), 0, index({0, 3}), zeros({2}));
  });
  require_error<ShapeError>("index_add: the values have shape [2, 5], expected [2, 1]", [&] {
    index_add(x, 1, index({0}), zeros({2, 5}));
  });
  require_error<IndexError>("embedding: padding_idx is 2, the weight has 2 rows",
                            [&] { embedding(index({0}), x, 2); });
  require_error<ShapeError>("conv1d: the input has shape [6]", [&] { conv1d(zeros({6}), image); });
  require_error<ShapeError>(
      "group_norm: the input has shape [1, 4, 5], expected [N, C, …] with C a multiple of the 3",
      [&] { group_norm(image, 3); });
  require_error<ShapeError>("dropout2d: the input has shape [3], expected [N, C, …]",
                            [] { dropout2d(zeros({3})); });
  require_error<Error>("dropout: the probability is 1.5", [&] { dropout2d(x, 1.5); });
  require_error<ShapeError>("upsample: from [1, 2, 0, 3] to 2 x 2", [] {
    upsample(zeros({1, 2, 0, 3}), 2);
  });
  require_error<Error>("einsum: \"ij\" has no comma", [&] { einsum("ij", x, x); });
  require_error<ShapeError>("einsum: 'j' has the sizes 6 and 2", [&] { einsum("ij,jk", x, x); });
  require_error<ShapeError>("einsum: \"i\" for shape [2, 6]", [&] { einsum("i,jk", x, x); });
  require_error<Error>("einsum: the result \"iz\" has 'z'", [&] { einsum("ij,ij->iz", x, x); });
  require_error<Error>("huber_loss: delta is 0, expected a number above 0",
                       [&] { huber_loss(x, x, 0); });
  require_error<ShapeError>("kl_div: the input has shape [2, 6], the target [1, 4, 5]",
                            [&] { kl_div(x, image); });
  require_error<Error>("norm: p is 0, expected a number above 0, or infinity", [&] { x.norm(0); });
  for (auto run :
       {+[](const Tensor& x) { return x.cumsum(0); }, +[](const Tensor& x) { return x.norm(); },
        +[](const Tensor& x) { return repeat(x, {1}); }, +[](const Tensor& x) { return clone(x); },
        +[](const Tensor& x) { return masked_fill(x, x, 0); },
        +[](const Tensor& x) { return x += 1; }})
    CHECK(thrown<Error>([&] { run(none); }) != "nothing was thrown");
  require_error<ShapeError>("gru_layer: the bias has shape [2], expected [6]", [] {
    gru_layer(zeros({1, 1, 6}), zeros({1, 2}), zeros({6, 2}), zeros({2}));
  });
}

TEST_CASE("windows and borders that do not fit are refused", "[quick]") {
  const Tensor image = zeros({1, 2, 4, 6});
  const auto misfit = [](const std::string& text, const std::function<void()>& f) {
    require_error<ShapeError>(text, f);
  };
  const auto bordered = [&](const std::vector<int64_t>& widths, PadMode mode) {
    return [=] { pad(image, widths, mode); };
  };
  misfit("pad: 3 widths for shape", bordered({1, 1, 1}, PadMode::Reflect));
  misfit("pad: 10 widths for shape", bordered(std::vector<int64_t>(10, 1), PadMode::Reflect));
  misfit("with 6 elements before and 0 behind, expected at most 5",
         bordered({6, 0}, PadMode::Reflect));
  misfit("with 0 elements before and 7 behind, expected at most 6",
         bordered({0, 7}, PadMode::Circular));
  misfit("with -6 elements before and 6 behind", bordered({-6, 6}, PadMode::Replicate));
  misfit("with 6 elements before and -6 behind", bordered({6, -6}, PadMode::Replicate));
  misfit("with -3 elements before and -3 behind", bordered({-3, -3}, PadMode::Replicate));
  misfit("pad: dimension 0 of shape [0]", [] { pad(zeros({0}), {1, 1}, PadMode::Replicate); });
  misfit("unfold: windows of 0 in steps of 1", [&] { image.unfold(3, 0, 1); });
  misfit("unfold: windows of 2 in steps of 0", [&] { image.unfold(3, 2, 0); });
  misfit("unfold: windows of 7 in steps of 1", [&] { image.unfold(3, 7, 1); });
  for (const UnfoldOptions& options :
       {UnfoldOptions{.kernel = 0}, UnfoldOptions{.kernel = 2, .stride = 0},
        UnfoldOptions{.kernel = 2, .padding = -1}, UnfoldOptions{.kernel = 2, .dilation = 0},
        UnfoldOptions{.kernel = 5}, UnfoldOptions{.kernel = {2, 7}},
        UnfoldOptions{.kernel = 2, .dilation = 4}})
    misfit("expected one that fits", [&] { unfold(image, options); });
  misfit("pixel_shuffle: the input has shape [4, 4]", [] { pixel_shuffle(zeros({4, 4}), 2); });
  misfit("expected [..., C · 0², H, W]", [&] { pixel_shuffle(image, 0); });
  misfit("expected [..., C · 2², H, W]", [&] { pixel_shuffle(image, 2); });
  misfit("pixel_unshuffle: the input has shape [4, 4]", [] { pixel_unshuffle(zeros({4, 4}), 2); });
  misfit("expected [..., C, H · 0, W · 0]", [&] { pixel_unshuffle(image, 0); });
  misfit("expected [..., C, H · 3, W · 3]", [&] { pixel_unshuffle(image, 3); });
  misfit("expected [..., C, H · 4, W · 4]", [&] { pixel_unshuffle(image, 4); });
  for (const Pair padding : {Pair(2, 0), Pair(0, 2)})
    require_error<Error>("expected at most half the kernel",
                         [&] { avg_pool2d(image, 3, 2, padding, true); });

  const Tensor weight = zeros({2, 3, 2, 2});
  const auto transposed = [&](const Tensor& x, const ConvTranspose2dOptions& options) {
    return [=] { conv_transpose2d(x, weight, {}, options); };
  };
  misfit("expected x.size(1) == w.size(0)", transposed(zeros({1, 3, 4, 4}), {}));
  for (const Pair extra : {Pair(-1, 0), Pair(2, 0), Pair(0, -1), Pair(0, 2)})
    require_error<Error>("expected less than the stride or the dilation",
                         transposed(image, {.stride = 2, .output_padding = extra}));
  misfit("give an output of -1×7", transposed(zeros({1, 2, 2, 6}), {.padding = {2, 0}}));
  misfit("give an output of 5×0", transposed(zeros({1, 2, 4, 1}), {.padding = {0, 1}}));
  misfit("expected images and outputs", transposed(zeros({1, 2, 0, 4}), {}));
  misfit("expected images and outputs", transposed(zeros({1, 2, 4, 0}), {}));
}

TEST_CASE("sizes whose products do not fit are refused, or wrap into the right place", "[quick]") {
  // The square of this factor is 2^64, which int64 has as 0.
  require_error<ShapeError>("pixel_shuffle: the input has shape [4, 2, 2]", [] {
    pixel_shuffle(zeros({4, 2, 2}), int64_t{1} << 32);
  });
  require_error<ShapeError>("pad: dimension 0 of shape [3] with 0 elements before", [] {
    pad(zeros({3}), {0, INT64_MAX}, PadMode::Replicate);
  });
  const int64_t large = int64_t{1} << 61;
  require_error<ShapeError>("has too many elements", [&] {
    pad(zeros({3}), {0, large}, PadMode::Replicate);
  });
  require_error<ShapeError>("upsample: from [1, 1, 3, 3] to 2305843009213693952 x", [&] {
    upsample(zeros({1, 1, 3, 3}), large);
  });
  require_error<ShapeError>("repeat: shape [3, 4611686018427387904] has too many elements",
                            [&] { repeat(zeros({3}), {2 * large}); });
  require_error<ShapeError>("repeat: shape [4294967296, 4294967296] has too many elements", [] {
    repeat(zeros({1}), {int64_t{1} << 32, int64_t{1} << 32});
  });
  CHECK(chunk(zeros({3}), INT64_MAX).size() == 3);
  // The product of the dilation and the kernel is 2^64.
  require_error<ShapeError>("unfold: the kernel 4294967297", [&] {
    unfold(zeros({1, 1, 9, 9}), {.kernel = (int64_t{1} << 32) + 1, .dilation = int64_t{1} << 32});
  });
  require_error<ShapeError>("unfold: the kernel 3", [&] {
    unfold(zeros({1, 1, 9, 9}), {.kernel = 3, .padding = INT64_MAX});
  });
  require_error<ShapeError>("pixel_unshuffle: shape [1, 4294967296, 4294967296]", [] {
    pixel_unshuffle(zeros({1, 0, 0}), int64_t{1} << 32);
  });
  require_error<ShapeError>("pixel_shuffle: shape [4, 4611686018427387904]", [&] {
    pixel_shuffle(zeros({0, 4, 4}), 2 * large);
  });
  const Tensor image = zeros({1, 1, 4, 4});
  for (const bool ceil_mode : {false, true}) {
    require_error<Error>("max_pool2d: the kernel is 2×2, the stride 9223372036854775807",
                         [&] { max_pool2d(image, 2, INT64_MAX, 0, 1, ceil_mode); });
    require_error<Error>("avg_pool2d: the kernel is 9223372036854775807",
                         [&] { avg_pool2d(image, INT64_MAX, 1, INT64_MAX / 2, ceil_mode); });
  }
  require_error<Error>("conv_transpose2d: the number of groups is 9223372036854775807", [&] {
    conv_transpose2d(image, zeros({1, 2, 1, 1}), {}, {.groups = INT64_MAX});
  });
  require_error<Error>("conv2d: the number of groups is 9223372036854775807", [&] {
    conv2d(image, zeros({1, 2, 1, 1}), {}, {.groups = INT64_MAX});
  });
  const Tensor wide = zeros({0, int64_t{1} << 40, 1, 1});
  require_error<Error>("conv2d: the number of groups is 16777216, a group's channels are 1099511",
                       [&] { conv2d(image, wide, {}, {.groups = 1 << 24}); });
  require_error<Error>("conv_transpose2d: the number of groups is 16777216, a group's channels",
                       [&] { conv_transpose2d(image, wide, {}, {.groups = 1 << 24}); });
  using Pool = Tensor (*)(const Tensor&, const Pool2dOptions&);
  for (const Pool pool : {Pool{max_pool2d}, Pool{avg_pool2d}}) {
    require_error<Error>("_pool2d: the kernel is 9223372036854775807",
                         [&] { pool(image, {.kernel = INT64_MAX, .padding = INT64_MAX / 2}); });
    require_error<Error>("_pool2d: the image is 9223372036854775807", [&] {
      pool(zeros({0, 1, INT64_MAX, 1}), {.kernel = 2, .padding = 1});
    });
  }
  // The sizes that stay have 2^80 elements; the one that is summed is 0.
  const Tensor nothing = zeros({0, 1, 1}).expand({0, int64_t{1} << 40, int64_t{1} << 40});
  require_error<ShapeError>("einsum: shape", [&] { einsum("cab,cde->abde", nothing, nothing); });
  // 2^63 is 2 more than a multiple of 3.
  CHECK(to_vector<float>(roll(tensor<float>({1, 2, 3}), {INT64_MIN}, {0})) ==
        std::vector<float>{3, 1, 2});
}

TEST_CASE("einsum and flip refuse what PyTorch refuses", "[quick]") {
  const Tensor x = ones({2, 2});
  require_error<Error>("flip: dimension 0 is there twice", [&] { flip(x, {0, 0}); });
  require_error<Error>("flip: dimension 1 is there twice", [&] { flip(x, {1, 0, -1}); });
  require_error<Error>("einsum: the equation is null", [&] { einsum(nullptr, x, x); });
  for (const char* equation : {"", ",", "ij->ij,", "ij,jk->ik->", "ij,jk-", "ij,jk>ik", "ij,j.k",
                               "ij,jk->,", "ij,jk,kl->il", "...j,jk", "ii,ij", "ij,jk->ii"})
    CHECK_THROWS_AS(einsum(equation, x, x), Error);
}

TEST_CASE("randperm refuses a dtype that does not hold all numbers", "[quick]") {
  require_error<DTypeError>("randperm: dtype uint8 cannot hold all numbers below 257",
                            [] { randperm(257, {.dtype = DType::UInt8}); });
  require_error<DTypeError>("randperm: dtype bfloat16 cannot hold all numbers below 258",
                            [] { randperm(258, {.dtype = DType::BFloat16}); });
  for (const DType dtype : {DType::UInt8, DType::BFloat16, DType::Int32, DType::Float32}) {
    const Tensor drawn = randperm(256, {.dtype = dtype});
    CHECK(drawn.dtype() == dtype);
    CHECK(equal(to(drawn.sort().values, DType::Int64), arange(256)));
  }
}

TEST_CASE("operations say which of them was given an undefined tensor", "[quick]") {
  const Tensor x = zeros({2, 6});
  const Tensor none;
  const Tensor index = zeros({1, 6}, {DType::Int64});
  require_error<Error>("to: an argument is an undefined tensor", [&] { to(none, DType::Float64); });
  require_error<Error>("to: an argument is an undefined tensor", [&] { to(none, Device()); });
  require_error<Error>("contiguous: an argument is an undefined tensor", [&] { contiguous(none); });
  require_error<Error>("clone: an argument is an undefined tensor", [&] { clone(none); });
  require_error<Error>("to_layout: an argument is an undefined tensor",
                       [&] { to_layout(none, Layout::ChannelsLast); });
  require_error<Error>("prod: an argument is an undefined tensor", [&] { prod(none); });
  require_error<Error>("prod: an argument is an undefined tensor", [&] { prod(none, 0); });
  require_error<Error>("squeeze: an argument is an undefined tensor", [&] { squeeze(none); });
  require_error<Error>("uniform_: an argument is an undefined tensor", [&] { none.uniform_(); });
  require_error<Error>("roll: an argument is an undefined tensor", [&] { roll(none, {1}); });
  require_error<Error>("roll: an argument is an undefined tensor", [&] { roll(none, {1}, 0); });
  require_error<Error>("linear: an argument is an undefined tensor", [&] { linear(x, none); });
  require_error<Error>("gather: an argument is an undefined tensor",
                       [&] { gather(none, 0, index); });
  require_error<Error>("gather: an argument is an undefined tensor", [&] { gather(x, 0, none); });
}

TEST_CASE("what is made of sizes of 0 is empty, not an error", "[quick]") {
  CHECK(zeros({0, 3}).chunk(2)[0].shape() == Shape{0, 3});
  CHECK(zeros({2, 0}).sort().values.shape() == Shape{2, 0});
  CHECK(group_norm(zeros({0, 4, 3}), 2).shape() == Shape{0, 4, 3});
  CHECK(embedding(zeros({0}, {.dtype = DType::Int64}), zeros({3, 2})).shape() == Shape{0, 2});
  CHECK(zeros({0}).any().item<bool>() == false);
  CHECK(zeros({0}).all().item<bool>() == true);
  CHECK(zeros({0, 2}).norm().item<double>() == 0);
  CHECK(to_vector<double>(logsumexp(zeros({2, 0}), 1)) ==
        std::vector<double>{-INFINITY, -INFINITY});
  CHECK(cat({zeros({0}), zeros({2, 3})}).shape() == Shape{2, 3});
  CHECK(adaptive_avg_pool2d(zeros({2, 2, 3, 3}), 0).shape() == Shape{2, 2, 0, 0});
}

}  // namespace ringgrad::test::refused_ops_test
