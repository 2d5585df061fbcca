#include "data/transform.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "data/random_sequence.h"

namespace ringgrad {
namespace {

float per_channel(const std::vector<float>& values, int channel, float otherwise) {
  if (values.empty()) return otherwise;
  return values[values.size() == 1 ? 0 : channel];
}

// One row of the output: pixels [first, last) of the input, black around them, mirrored or not. Without __restrict
// each of these short loops starts with a check for overlap, since bytes may alias anything.
void write_row(const uint8_t* __restrict pixels, int first, int last, int width, float scale, float black, bool mirror,
               float* __restrict out) {
  if (mirror) {
    float* __restrict end = out + width - 1;
    for (int x = 0; x < first; ++x) end[-x] = black;
    for (int x = first; x < last; ++x) end[-x] = static_cast<float>(pixels[x]) * scale + black;
    for (int x = last; x < width; ++x) end[-x] = black;
  } else {
    for (int x = 0; x < first; ++x) out[x] = black;
    for (int x = first; x < last; ++x) out[x] = static_cast<float>(pixels[x]) * scale + black;
    for (int x = last; x < width; ++x) out[x] = black;
  }
}

}  // namespace

Augmentation draw_augmentation(const ImageTransform& t, int height, int width, int64_t epoch, int64_t index) {
  Augmentation a;
  if (t.crop_padding == 0 && !t.flip && t.cutout == 0) return a;
  // All numbers are always drawn, so that switching one augmentation on leaves the others as they were.
  RandomSequence random(t.seed, Purpose::Augmentation, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index));
  a.dy = random.between(-t.crop_padding, t.crop_padding);
  a.dx = random.between(-t.crop_padding, t.crop_padding);
  a.flip = random.between(0, 1) == 1 && t.flip;
  // The square's centre is anywhere in the image, so it may stick out: DeVries and Taylor found that this matters.
  const int top = random.between(0, height - 1) - t.cutout / 2, left = random.between(0, width - 1) - t.cutout / 2;
  a.cut_top = std::max(top, 0);
  a.cut_bottom = std::min(top + t.cutout, height);
  a.cut_left = std::max(left, 0);
  a.cut_right = std::min(left + t.cutout, width);
  return a;
}

void apply_transform(const ImageTransform& t, const Augmentation& a, const uint8_t* image, int channels, int height,
                     int width, float* out) {
  // Columns [first, last) of an output row, before mirroring, have a pixel; the others lie on the black border.
  const int first = std::clamp(-a.dx, 0, width), last = std::clamp(width - a.dx, first, width);
  const int cut_width = a.cut_right - a.cut_left;
  for (int c = 0; c < channels; ++c) {
    const float inverse = 1 / per_channel(t.std, c, 1), scale = inverse / 255;
    const float black = -per_channel(t.mean, c, 0) * inverse;
    for (int y = 0; y < height; ++y, out += width) {
      const int from = y + a.dy;
      if (from < 0 || from >= height) {
        std::fill_n(out, width, black);
      } else {
        const uint8_t* pixels = image + (static_cast<int64_t>(c) * height + from) * width + a.dx;
        write_row(pixels, first, last, width, scale, black, a.flip, out);
      }
      if (y >= a.cut_top && y < a.cut_bottom && cut_width > 0) std::fill_n(out + a.cut_left, cut_width, 0.0f);
    }
  }
}

void check_transform(const ImageTransform& t, int64_t channels) {
  CHECK(t.crop_padding >= 0, "transform: crop_padding is ", t.crop_padding, ", expected at least 0");
  CHECK(t.cutout >= 0, "transform: cutout is ", t.cutout, ", expected at least 0");
  auto fits = [&](const std::vector<float>& values) {
    return values.size() <= 1 || static_cast<int64_t>(values.size()) == channels;
  };
  CHECK(fits(t.mean) && fits(t.std), "transform: ", t.mean.size(), " means and ", t.std.size(),
        " standard deviations for images with ", channels, " channels, expected none, one or one per channel");
  for (float mean : t.mean) CHECK(std::isfinite(mean), "transform: a mean is ", mean, ", expected a finite number");
  for (float std : t.std) CHECK(std::isfinite(std) && std > 0, "transform: a std is ", std, ", expected more than 0");
}

}  // namespace ringgrad
