#include "ringgrad/data/loading/write_images.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

void write_normalized(const Tensor& batch, const Tensor& images, std::span<const int64_t> indices,
                      int64_t, const Normalization& by, const AugmentOptions& augment) {
  CHECK(!augment.any(),
        "transform: images are to be augmented, but this program is linked without that; link all "
        "of ringgrad::ringgrad, or leave the augmentation out");
  const int64_t channels = images.size(1);
  const int64_t pixels = images.size(2) * images.size(3);
  float* y = batch.data<float>();
  for (const int64_t index : indices) {
    const uint8_t* x = images.data<uint8_t>() + index * channels * pixels;
    for (int64_t c = 0; c < channels; ++c) {
      const double scale = by.scale.data<float>()[c];
      const double shift = by.shift.data<float>()[c];
      for (int64_t i = 0; i < pixels; ++i) *y++ = static_cast<float>(scale * *x++ + shift);
    }
  }
}

}  // namespace

constinit WriteImages write_images = write_normalized;

}  // namespace ringgrad
