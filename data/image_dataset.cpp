#include "ringgrad/data/image_dataset.h"

#include "ringgrad/core/base/check.h"

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

}  // namespace ringgrad
