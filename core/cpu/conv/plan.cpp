#include "ringgrad/core/cpu/conv/plan.h"

#include <algorithm>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/cpu/amx/tile_unit.h"
#include "ringgrad/core/cpu/conv/depthwise.h"
#include "ringgrad/core/cpu/conv/sub_images.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad::conv {
namespace {

bool is_square(Pair pair) { return pair.h == pair.w; }

bool for_vectors(DType dtype) { return dtype == DType::Float32 || dtype == DType::BFloat16; }

// A dilated convolution can be split into ordinary ones on every d-th pixel, the sub-images. This
// pays if Winograd's algorithm computes their outputs and most of its tiles are full: 3 x 3 then
// takes 0.3 to 0.8 of the time. With direct products, filters of 2 x 2 and 7 x 7 take up to three
// times as long.
bool sub_images_pay(const ConvProblem& p) {
  const auto fills_tiles = [](int64_t outputs, int64_t dilation) {
    constexpr int64_t kTile = 4;
    return outputs > 0 &&
           (outputs - 1) / (kTile * dilation) + 1 <= 3 * outputs / (2 * kTile * dilation);
  };
  const bool winograd = p.w[2] == p.w[3] && (p.w[2] == 3 || p.w[2] == 5);
  return winograd && p.options.stride == Pair(1) && p.x[1] >= kChannelBlock &&
         fills_tiles(p.output().h, p.options.dilation.h) &&
         fills_tiles(p.output().w, p.options.dilation.w);
}

// Groups of whole blocks of channels, each a convolution by itself: F(4, 3) of 16 channels takes
// 0.35 to 0.5, and direct 0.6 to 0.9, of the time that contiguous images take.
bool has_blocked_groups(const ConvProblem& p) {
  const int64_t groups = p.options.groups;
  return groups > 1 && p.options.dilation == Pair(1) && p.x[1] % (groups * kChannelBlock) == 0 &&
         p.w[0] % (groups * kChannelBlock) == 0;
}
ConvProblem of_group(const ConvProblem& p) {
  ConvProblem one = p;
  one.x[1] /= p.options.groups;
  one.w[0] /= p.options.groups;
  one.options.groups = 1;
  one.x_layout = Layout::ChannelBlocked;
  one.layout = Layout::ChannelBlocked;
  return one;
}

bool fits_blocked_kernels(const ConvProblem& p) {
  if (p.w.numel() == 0 || p.x[2] == 0 || p.x[3] == 0) return false;
  if (p.options.groups != 1 && !has_blocked_groups(p)) return false;
  if (!for_vectors(p.dtype)) return false;
  if (p.options.dilation != Pair(1)) return sub_images_pay(p);
  return is_square(p.options.stride) && is_square(p.options.padding);
}

cpu::ConvShape shape_of(const ConvProblem& p) {
  const Conv2dOptions& o = p.options;
  const auto [height, width] = p.output();
  return {.n = p.x[0],
          .groups = o.groups,
          .c = p.w[1],
          .h = p.x[2],
          .w = p.x[3],
          .k = p.w[0] / o.groups,
          .r = p.w[2],
          .s = p.w[3],
          .p = height,
          .q = width,
          .stride = o.stride,
          .padding = o.padding,
          .dilation = o.dilation};
}

// Returns true if each channel has one filter. 16 such filters are a vector.
bool fits_blocked_depthwise(const ConvProblem& p) {
  return for_vectors(p.dtype) && p.w[1] == 1 && p.w[0] == p.options.groups &&
         p.x[1] >= kChannelBlock && is_depthwise(shape_of(p));
}
// Blocked images take 0.05 to 0.5 of the time that a detour over contiguous ones would take.
// Contiguous images stay contiguous if their rows fill vectors, because two transpositions would
// cost more.
bool blocked_depthwise_pays(const ConvProblem& p) {
  return p.x_layout == Layout::ChannelBlocked || p.options.stride.w > 1 ||
         p.output().w < kChannelBlock;
}

// Chooses for contiguous images. Those of 16 bits are computed as float32.
ConvMethod contiguous_method(const ConvProblem& p) {
  if (is_depthwise(shape_of(p))) return ConvMethod::Depthwise;
  return p.dtype == DType::Float64 ? ConvMethod::Im2col : ConvMethod::Planes;
}

// F(4, 5) takes half as many products as F(2, 5), unless its tiles are mostly empty.
ConvMethod winograd_scheme(const ConvProblem& p) {
  if (p.options.stride.h == 2) return ConvMethod::WinogradStride2;
  if (p.w[2] == 3) return ConvMethod::WinogradF43;
  return std::min(p.output().h, p.output().w) > 2 ? ConvMethod::WinogradF45
                                                  : ConvMethod::WinogradF25;
}

// Stride 1: Winograd is 2 to 3 times as fast as direct, for 16 and more channels and images of
// 2 x 2 and larger. Stride 2: 1.1 to 1.9 times from 16 channels on, unless most of a tile of 4 x 4
// outputs lies outside the image. Measured on AVX-512 by bench/conv_bench.cpp.
bool winograd_pays(const ConvProblem& p) {
  return p.options.stride.h == 1 ||
         (std::min(p.x[1], p.w[0]) >= kChannelBlock && std::min(p.output().h, p.output().w) > 2);
}

// Tiles are for bfloat16. A weight gradient fills them with 32 images.
bool fills_tiles(const ConvProblem& p) {
  return p.dtype == DType::BFloat16 && (p.pass != ConvPass::BackwardWeight || p.x[0] >= 8);
}

// Chooses for channel-blocked images without dilation. Tiles are ten times as fast as vectors,
// which outweighs the products that Winograd saves.
ConvMethod blocked_method(const ConvProblem& p, bool on_tiles) {
  const bool fastest = p.wanted == ConvAlgorithm::Auto && !on_tiles && winograd_pays(p);
  if (has_winograd(p) && (fastest || p.wanted == ConvAlgorithm::Winograd))
    return winograd_scheme(p);
  return on_tiles ? ConvMethod::Tiles : ConvMethod::Direct;
}

// Returns the problem of the sub-images, which already contain their padding.
ConvProblem of_sub_images(const ConvProblem& p) {
  const auto blocked = [](int64_t n, int64_t channels, Pair size) {
    return BlockedShape{n, channel_blocks(channels), size.h, size.w};
  };
  const BlockedShape x = blocked(p.x[0], p.x[1], {p.x[2], p.x[3]});
  const BlockedShape y = blocked(p.x[0], p.w[0], p.output());
  const SubImages seen = sub_images_seen(x, y, {p.w[2], p.w[3]}, p.options);
  ConvProblem parts = p;
  parts.x = {seen.parts().n, p.x[1], seen.h, seen.w};
  parts.options = {};
  parts.x_layout = Layout::ChannelBlocked;
  parts.layout = Layout::ChannelBlocked;
  return parts;
}

}  // namespace

bool has_winograd(const ConvProblem& p) {
  const Conv2dOptions& o = p.options;
  if (p.w[2] != p.w[3] || o.groups != 1 || o.dilation != Pair(1)) return false;
  if (!is_square(o.stride) || !is_square(o.padding)) return false;
  const bool stride1 = o.stride.h == 1 && (p.w[2] == 3 || p.w[2] == 5);
  const bool stride2 = o.stride.h == 2 && p.w[2] == 3 && o.padding.h == 1;
  return stride1 || stride2;
}

ConvPlan plan(const ConvProblem& p, bool tiles) {
  if (!p.layout && covers_image(p)) return {.method = ConvMethod::MatrixProduct};
  const bool depthwise = fits_blocked_depthwise(p);
  const bool pays = depthwise && blocked_depthwise_pays(p);
  const bool blocked =
      p.layout ? *p.layout == Layout::ChannelBlocked : pays || fits_blocked_kernels(p);
  if (!blocked) return {.method = contiguous_method(p)};

  if (depthwise)
    return {.layout = Layout::ChannelBlocked,
            .x_layout = Layout::ChannelBlocked,
            .method = ConvMethod::DepthwiseBlocked};
  if (p.options.groups > 1) return plan(of_group(p), tiles);
  if (p.options.dilation != Pair(1)) {
    ConvPlan parts = plan(of_sub_images(p), tiles);
    parts.sub_images = true;
    return parts;
  }
  // With vectors, a first layer's few channels stay contiguous, because a block of 16 would be
  // padded with up to 15 zero channels. Tiles multiply 16 channels at a time and take fewer cycles
  // even so.
  const bool few = p.x[1] < kChannelBlock && p.x_layout != Layout::ChannelBlocked;
  const bool on_tiles = tiles && fills_tiles(p);
  ConvPlan chosen{.layout = Layout::ChannelBlocked,
                  .x_layout = few ? Layout::Strided : Layout::ChannelBlocked};
  const bool first_layer = few && !on_tiles && p.pass != ConvPass::BackwardInput;
  chosen.method = first_layer ? ConvMethod::FirstLayer : blocked_method(p, on_tiles);
  return chosen;
}

ConvPlan plan(const ConvProblem& problem) {
  return plan(problem, amx::tiles() != amx::Tiles::None);
}

namespace {

Tensor filters_as_they_are(const Tensor&, const Tensor& w) { return w; }

Layout pool2d_layout(const Tensor& x) {
  return for_vectors(x.dtype()) && x.is_channel_blocked() ? Layout::ChannelBlocked
                                                          : Layout::Strided;
}

Layout batch_norm_layout(const Tensor& x) {
  return x.is_channel_blocked() ? x.layout() : Layout::Strided;
}

// The layout's bits: 16 for the channels of each pixel of a block.
Tensor batch_norm_positive(const Tensor& x) {
  const bool ours = preferred_provider(DeviceType::CPU) == Provider::Native;
  if (!ours || !for_vectors(x.dtype()) || !x.is_channel_blocked()) return {};
  const int64_t pixels = x.numel() / x.size(1);
  return empty({pixels * channel_blocks(x.size(1)), 2}, {DType::UInt8, x.device()});
}

BEFORE_MAIN(cpu_layouts,
            register_layout_policy(DeviceType::CPU, {.conv2d = plan,
                                                     .conv2d_filters = filters_as_they_are,
                                                     .pool2d = pool2d_layout,
                                                     .batch_norm = batch_norm_layout,
                                                     .batch_norm_positive = batch_norm_positive}));

}  // namespace
}  // namespace ringgrad::conv
