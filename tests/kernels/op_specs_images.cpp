// Rows for batches of augmented images, one pixel at a time, and for images of another size.
#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

constexpr int64_t kEpoch = 5;
constexpr double kUntouched = 7;
const std::vector<float> kScale = {0.0171f, 0.0174f, 0.0175f};
const std::vector<float> kShift = {-1.99f, -2.02f, -1.7f};

// -2 -1 0 1 2 3 4 5 of four pixels: 2 1 0 1 2 3 2 1.
int mirrored_at_border(int i, int size) {
  while (i < 0 || i >= size) i = i < 0 ? -i : 2 * (size - 1) - i;
  return i;
}

// Inputs: a batch that gives shape and dtype, the images and the index.
OpSpec augmented(const std::string& name, const AugmentOptions& options) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"augment_images"};
  spec.run = [options](const Tensors& in) {
    const Tensor y = full(in[0].shape(), kUntouched, in[0].options());
    const auto channels = static_cast<size_t>(in[0].size(1));
    const auto of_channels = [&](std::vector<float> values) {
      values.resize(channels);
      return tensor(values, y.device());
    };
    const Tensor epoch = full({}, kEpoch, {.dtype = DType::Int64, .device = y.device()});
    kernels::augment_images(y, in[1], in[2], epoch, of_channels(kScale), of_channels(kShift),
                            options);
    return Tensors{y};
  };
  spec.reference = [options](const Arrays& in) {
    Array y(in[0].shape, kUntouched);
    const Array& images = in[1];
    const auto height = static_cast<int>(y.size(2));
    const auto width = static_cast<int>(y.size(3));
    for (int64_t b = 0; b < y.size(0); ++b) {
      const auto i = static_cast<int64_t>(in[2](b));
      if (i < 0 || i >= images.size(0)) continue;
      const Augmentation a = draw_augmentation(options, height, width, kEpoch, i);
      for (int64_t c = 0; c < y.size(1); ++c)
        for (int h = 0; h < height; ++h)
          for (int w = 0; w < width; ++w) {
            int from_h = h + a.dy;
            int from_w = (a.flip ? width - 1 - w : w) + a.dx;
            if (options.reflect)
              from_h = mirrored_at_border(from_h, height),
              from_w = mirrored_at_border(from_w, width);
            const bool inside = from_h >= 0 && from_h < height && from_w >= 0 && from_w < width;
            const bool cut =
                h >= a.cut_top && h < a.cut_bottom && w >= a.cut_left && w < a.cut_right;
            const double pixel = inside ? images(i, c, from_h, from_w) : 0;
            y(b, c, h, w) = cut ? 0 : pixel * kScale[c] + kShift[c];
          }
    }
    return Arrays{y};
  };
  const auto bytes = [](const Shape& shape) {
    Input input = whole(shape, 0, 256);
    input.dtype = DType::UInt8;
    return input;
  };
  spec.samples = {{uniform({4, 1, 28, 28}), bytes({6, 1, 28, 28}), labels({5, 0, 2, 2})},
                  {uniform({3, 3, 32, 32}), bytes({4, 3, 32, 32}), labels({3, 0, 1})},
                  {uniform({24, 3, 5, 3}), bytes({40, 3, 5, 3}),
                   labels({9,  8,  7,  6,  5,  4,  3,  2,  -1, 40, 12, 11,
                           10, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 39})},
                  {uniform({0, 3, 4, 4}), bytes({2, 3, 4, 4}), labels({})}};
  spec.bare_kernel = true;
  return spec;
}

// Returns the place of output i of n among `size` pixels.
double seen_at(int64_t i, int64_t n, int64_t size, const UpsampleOptions& options) {
  const auto in = static_cast<double>(size);
  const auto out = static_cast<double>(n);
  const auto at = static_cast<double>(i);
  if (options.mode == UpsampleMode::Nearest) return std::floor(at * in / out);
  const double place = options.align_corners ? (n == 1 ? 0 : at * (in - 1) / (out - 1))
                                             : (at + 0.5) * in / out - 0.5;
  return std::clamp(place, 0.0, in - 1);
}

OpSpec upsampled(const std::string& name, Pair to, const UpsampleOptions& options) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"interpolate"};
  spec.run = [=](const Tensors& in) { return Tensors{upsample(in[0], to, options)}; };
  spec.reference = [=](const Arrays& in) {
    const Array& x = in[0];
    Array y({x.size(0), x.size(1), to.h, to.w});
    for (int64_t e = 0; e < y.numel(); ++e) {
      const Shape at = y.index(e);
      const double row = seen_at(at[2], to.h, x.size(2), options);
      const double column = seen_at(at[3], to.w, x.size(3), options);
      for (int64_t i = 0; i < x.size(2); ++i)
        for (int64_t j = 0; j < x.size(3); ++j) {
          const double near = std::max(0.0, 1 - std::abs(row - static_cast<double>(i))) *
                              std::max(0.0, 1 - std::abs(column - static_cast<double>(j)));
          y.values[e] += near * x(at[0], at[1], i, j);
        }
    }
    return Arrays{y};
  };
  spec.samples = {{uniform({2, 3, 4, 5})}, {uniform({2, 17, 2, 3})}, {uniform({1, 2, 1, 2})},
                  {uniform({1, 1, 1, 1})}, {uniform({1, 33, 9, 1})}, {uniform({0, 3, 4, 4})}};
  spec.errors = {error<ShapeError>("upsample: from [1, 2, 0, 3]", [=] {
    upsample(zeros({1, 2, 0, 3}), to, options);
  })};
  spec.terms = 64;  // of a gradient, along both axes
  spec.keeps_blocked = true;
  return spec;
}

}  // namespace

std::vector<OpSpec> image_specs() {
  const UpsampleOptions bilinear{.mode = UpsampleMode::Bilinear};
  const UpsampleOptions corners{.mode = UpsampleMode::Bilinear, .align_corners = true};
  return {
      upsampled("upsample to the nearest pixel", {8, 7}, {}),
      upsampled("upsample between pixels", {8, 7}, bilinear),
      upsampled("upsample to fewer pixels", {3, 2}, bilinear),
      upsampled("upsample from corner to corner", {6, 9}, corners),
      upsampled("upsample to one pixel", 1, corners),
      augmented("augment_images that only normalises", {}),
      augmented("augment_images with crops", {.crop_padding = 2, .seed = 1}),
      augmented("augment_images with crops beyond the image",
                {.crop_padding = 9, .flip = true, .seed = 2}),
      augmented("augment_images with flips", {.flip = true, .seed = 3}),
      augmented("augment_images with cutout", {.cutout = 3, .seed = 4}),
      augmented("augment_images with mirrored borders",
                {.crop_padding = 2, .reflect = true, .flip = true, .seed = 6}),
      augmented("augment_images with everything",
                {.crop_padding = 4, .flip = true, .cutout = 8, .seed = 5}),
  };
}

}  // namespace ringgrad::test
