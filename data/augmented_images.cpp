// A DataLoader's images are gathered, augmented and normalised by one kernel.
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/data/loading/write_images.h"

namespace ringgrad {
namespace {

void write_augmented(const Tensor& batch, const Tensor& images, std::span<const int64_t> indices,
                     int64_t epoch, const Normalization& by, const AugmentOptions& augment) {
  const Tensor index = tensor(std::vector<int64_t>(indices.begin(), indices.end()));
  const Tensor now = tensor(std::vector<int64_t>{epoch}, Shape{});
  kernels::augment_images(batch, images, index, now, by.scale, by.shift, augment);
}
BEFORE_MAIN(augmented_images, write_images = write_augmented);

}  // namespace
}  // namespace ringgrad
