// Batches of augmented images on the CPU. One pass over the bytes gathers, crops, flips, normalises
// and cuts out.
#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// Writes one row of the output: pixels [first, last) of the input with black around them, mirrored
// or not. __restrict is needed because bytes may alias anything: without it each of these short
// loops would begin with a check for overlap.
template <class T>
void write_row(const uint8_t* __restrict pixels, int first, int last, int width, float scale,
               float black, bool mirror, T* __restrict out) {
  using A = Accumulator<T>;
  const auto value = [scale = A{scale}, black = A{black}](uint8_t pixel) {
    return static_cast<T>(static_cast<A>(pixel) * scale + black);
  };
  const T edge = static_cast<T>(black);
  if (mirror) {
    T* __restrict end = out + width - 1;
    for (int x = 0; x < first; ++x) end[-x] = edge;
    for (int x = first; x < last; ++x) end[-x] = value(pixels[x]);
    for (int x = last; x < width; ++x) end[-x] = edge;
  } else {
    for (int x = 0; x < first; ++x) out[x] = edge;
    for (int x = first; x < last; ++x) out[x] = value(pixels[x]);
    for (int x = last; x < width; ++x) out[x] = edge;
  }
}

// Fills from the whole input row what write_row left black.
template <class T>
void reflect_borders(const uint8_t* row, const Augmentation& a, int first, int last, int width,
                     float scale, float shift, T* out) {
  for (int x = 0; x < width; ++x) {
    if (x >= first && x < last) continue;
    const auto pixel = static_cast<Accumulator<T>>(row[reflected(x + a.dx, width)]);
    out[a.flip ? width - 1 - x : x] =
        static_cast<T>(pixel * Accumulator<T>{scale} + Accumulator<T>{shift});
  }
}

template <class T>
void write_image(const Augmentation& a, bool reflect, const uint8_t* image, int channels,
                 int height, int width, const float* scale, const float* shift, T* out) {
  // Columns [first, last) of an output row, before mirroring, have a pixel; the others lie on the
  // black border.
  const int first = std::clamp(-a.dx, 0, width);
  const int last = std::clamp(width - a.dx, first, width);
  const int cut_width = a.cut_right - a.cut_left;
  for (int c = 0; c < channels; ++c) {
    for (int y = 0; y < height; ++y, out += width) {
      const int from = reflect ? reflected(y + a.dy, height) : y + a.dy;
      if (from < 0 || from >= height) {
        std::fill_n(out, width, static_cast<T>(shift[c]));
      } else {
        const uint8_t* row = image + (static_cast<int64_t>(c) * height + from) * width;
        write_row(row + a.dx, first, last, width, scale[c], shift[c], a.flip, out);
        if (reflect) reflect_borders(row, a, first, last, width, scale[c], shift[c], out);
      }
      if (y >= a.cut_top && y < a.cut_bottom && cut_width > 0)
        std::fill_n(out + a.cut_left, cut_width, static_cast<T>(0.0f));
    }
  }
}

// Runs on the calling thread alone. The loader's workers call it and must not take the training's
// threads.
void augment_images_cpu(Stream, const Tensor& y, const Tensor& images, const Tensor& index,
                        const Tensor& epoch, const Tensor& scale, const Tensor& shift,
                        const AugmentOptions& options) {
  ASSERT(y.is_contiguous() && images.is_contiguous() && index.is_contiguous() && y.dim() == 4);
  const auto channels = static_cast<int>(y.size(1));
  const auto height = static_cast<int>(y.size(2));
  const auto width = static_cast<int>(y.size(3));
  const int64_t pixels = int64_t{channels} * height * width;
  const int64_t now = *epoch.data<int64_t>();
  visit_floating("augment_images", y.dtype(), [&]<class T>() {
    for (int64_t b = 0; b < y.size(0); ++b) {
      const int64_t i = index.data<int64_t>()[b];
      if (i < 0 || i >= images.size(0)) continue;
      write_image(draw_augmentation(options, height, width, now, i), options.reflect,
                  images.data<uint8_t>() + i * pixels, channels, height, width, scale.data<float>(),
                  shift.data<float>(), y.data<T>() + b * pixels);
    }
  });
}

REGISTER_KERNEL(augment_images, CPU, Native, augment_images_cpu);

}  // namespace
}  // namespace ringgrad::cpu
