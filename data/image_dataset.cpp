#include "data/image_dataset.h"

#include <cmath>

#include "core/check.h"

namespace ringgrad {

const char* name(Split split) { return split == Split::Train ? "train" : "test"; }

void check_dataset_invariants(const ImageDataset& d) {
  CHECK_AS(ShapeError,
           d.images.defined() && d.images.dim() == 4 && d.images.is_contiguous() && d.images.device().is_cpu(),
           "dataset ", d.name, ": images must be contiguous [N, C, H, W] on the CPU");
  CHECK_AS(DTypeError, d.images.dtype() == DType::UInt8, "dataset ", d.name, ": images are ", d.images.dtype(),
           ", expected uint8");
  CHECK_AS(ShapeError,
           d.labels.defined() && d.labels.dim() == 1 && d.labels.is_contiguous() && d.labels.device().is_cpu() &&
               d.labels.size(0) == d.images.size(0),
           "dataset ", d.name, ": labels must be a contiguous [N] on the CPU with N = ", d.images.size(0));
  const int64_t* labels = d.labels.data<int64_t>();
  for (int64_t i = 0; i < d.size(); ++i)
    CHECK_AS(IndexError, labels[i] >= 0 && labels[i] < static_cast<int64_t>(d.classes.size()), "dataset ", d.name,
             ": label ", labels[i], " of image ", i, " is not in [0, ", d.classes.size(), ")");
}

ChannelStatistics channel_statistics(const ImageDataset& d) {
  check_dataset_invariants(d);
  const int64_t channels = d.images.size(1), plane = d.images.size(2) * d.images.size(3);
  ChannelStatistics result;
  for (int64_t c = 0; c < channels; ++c) {
    uint64_t sum = 0, squares = 0;  // of bytes, hence exact for 2^48 pixels
    for (int64_t n = 0; n < d.size(); ++n) {
      const uint8_t* pixels = d.images.data<uint8_t>() + (n * channels + c) * plane;
      for (int64_t i = 0; i < plane; ++i) {
        sum += pixels[i];
        squares += uint64_t{pixels[i]} * pixels[i];
      }
    }
    const double count = static_cast<double>(d.size() * plane), mean = static_cast<double>(sum) / count;
    result.mean.push_back(static_cast<float>(mean / 255));
    result.std.push_back(static_cast<float>(std::sqrt(static_cast<double>(squares) / count - mean * mean) / 255));
  }
  return result;
}

}  // namespace ringgrad
