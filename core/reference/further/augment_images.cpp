// Reference: batches of augmented images, pixel by pixel.
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

void augment_images(Stream, const Tensor& y_out, const Tensor& images_in, const Tensor& index_in,
                    const Tensor& epoch_in, const Tensor& scale_in, const Tensor& shift_in,
                    const AugmentOptions& options) {
  const Elements<int64_t> images(images_in);
  const Elements<int64_t> index(index_in);
  const Elements<double> scale(scale_in);
  const Elements<double> shift(shift_in);
  const Results<double> y(y_out);
  const int64_t epoch = Elements<int64_t>(flat(epoch_in))(0);
  const auto height = static_cast<int>(y_out.size(2));
  const auto width = static_cast<int>(y_out.size(3));
  for_each_index(y.shape(), [&](const Shape& i) {
    const int64_t image = index(i[0]);
    if (image < 0 || image >= images_in.size(0)) return;
    const Augmentation a = draw_augmentation(options, height, width, epoch, image);
    const auto row = static_cast<int>(i[2]);
    const auto column = static_cast<int>(i[3]);
    int h = row + a.dy;
    int w = (a.flip ? width - 1 - column : column) + a.dx;
    if (options.reflect) {
      h = reflected(h, height);
      w = reflected(w, width);
    }
    const bool cut =
        row >= a.cut_top && row < a.cut_bottom && column >= a.cut_left && column < a.cut_right;
    const bool inside = h >= 0 && h < height && w >= 0 && w < width;
    const double pixel = inside ? static_cast<double>(int64_t{images(image, i[1], h, w)}) : 0;
    y(i) = cut ? 0 : scale(i[1]) * pixel + shift(i[1]);
  });
}

REFERENCE(augment_images);

}  // namespace
}  // namespace ringgrad::reference
