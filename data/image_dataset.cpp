#include "ringgrad/data/image_dataset.h"

#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {

void check_dataset_invariants(const ImageDataset& d) {
  CHECK_AS(ShapeError,
           d.images.defined() && d.images.dim() == 4 && d.images.is_contiguous() &&
               d.images.device().is_cpu(),
           "dataset ", d.name, ": images must be contiguous [N, C, H, W] on the CPU");
  CHECK_AS(DTypeError, d.images.dtype() == DType::UInt8, "dataset ", d.name, ": images are ",
           d.images.dtype(), ", expected uint8");
  CHECK_AS(ShapeError,
           d.labels.defined() && d.labels.dim() == 1 && d.labels.is_contiguous() &&
               d.labels.device().is_cpu() && d.labels.size(0) == d.images.size(0),
           "dataset ", d.name,
           ": labels must be a contiguous [N] on the CPU with N = ", d.images.size(0));
  const int64_t* labels = d.labels.data<int64_t>();
  for (int64_t i = 0; i < d.size(); ++i)
    CHECK_AS(IndexError, labels[i] >= 0 && labels[i] < static_cast<int64_t>(d.classes.size()),
             "dataset ", d.name, ": label ", labels[i], " of image ", i, " is not in [0, ",
             d.classes.size(), ")");
}

namespace {

float per_channel(const std::vector<float>& values, int64_t channel, float otherwise) {
  if (values.empty()) return otherwise;
  return values[values.size() == 1 ? 0 : channel];
}

}  // namespace

void check_transform(const ImageTransform& t, int64_t channels) {
  CHECK(t.augment.crop_padding >= 0, "transform: crop_padding is ", t.augment.crop_padding,
        ", expected at least 0");
  CHECK(t.augment.cutout >= 0, "transform: cutout is ", t.augment.cutout, ", expected at least 0");
  auto fits = [&](const std::vector<float>& values) {
    return values.size() <= 1 || static_cast<int64_t>(values.size()) == channels;
  };
  CHECK(fits(t.mean) && fits(t.std), "transform: ", t.mean.size(), " means and ", t.std.size(),
        " standard deviations for images with ", channels,
        " channels, expected none, one or one per channel");
  for (float mean : t.mean)
    CHECK(std::isfinite(mean), "transform: a mean is ", mean, ", expected a finite number");
  for (float std : t.std)
    CHECK(std::isfinite(std) && std > 0, "transform: a std is ", std, ", expected more than 0");
}

Normalization normalization(const ImageTransform& t, int64_t channels, Device device) {
  check_transform(t, channels);
  std::vector<float> scale;
  std::vector<float> shift;
  for (int64_t c = 0; c < channels; ++c) {
    const float inverse = 1 / per_channel(t.std, c, 1);
    scale.push_back(inverse / 255);
    shift.push_back(-per_channel(t.mean, c, 0) * inverse);
  }
  return {tensor(scale, device), tensor(shift, device)};
}

}  // namespace ringgrad
