// Reference: the random numbers that core/random.h defines, one element after the other, and the
// kernels that use them.
#include <cmath>
#include <numbers>

#include "ringgrad/core/reference/random_state.h"

namespace ringgrad::reference {
namespace {

// Returns the i-th number in [0, 1) of a draw of elements of type T.
template <class T>
double uniform_at(const RandomState& state, int64_t i) {
  return uniform_number<T>(state.block(i, kWordsOf<T>).word, i % (4 / kWordsOf<T>));
}

void advance_random_state(Stream, const Tensor& snapshot_out, const Tensor& state_out,
                          int64_t count) {
  const Results<int64_t> snapshot(snapshot_out);
  const Results<int64_t> state(state_out);
  for (int64_t i = 0; i < 2; ++i) snapshot(i) = state(i);
  state(1) += count;
}

void uniform(Stream, const Tensor& x_out, const Tensor& state_in, double low, double high) {
  const RandomState state(state_in);
  const Results<double> x(flat(x_out));
  visit_floating("uniform", x_out.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x_out.numel(); ++i) x(i) = low + (high - low) * uniform_at<T>(state, i);
  });
}

// Box & Muller (1958): two uniform numbers make elements 2 i and 2 i + 1. The angle is a long
// double, because the cosine of an angle rounded to double would be wrong in its last digits near
// 0.
void normal(Stream, const Tensor& x_out, const Tensor& state_in, double mean, double std) {
  const RandomState state(state_in);
  const Results<double> x(flat(x_out));
  visit_floating("normal", x_out.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x_out.numel(); ++i) {
      const int64_t first = i - i % 2;
      const double radius = std::sqrt(-2 * std::log(1 - uniform_at<Accumulator<T>>(state, first)));
      const long double angle =
          2 * std::numbers::pi_v<long double> * uniform_at<Accumulator<T>>(state, first + 1);
      x(i) =
          mean + std * radius * static_cast<double>(i == first ? std::cos(angle) : std::sin(angle));
    }
  });
}

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

REFERENCE(advance_random_state);
REFERENCE(uniform);
REFERENCE(normal);
REFERENCE(augment_images);

}  // namespace
}  // namespace ringgrad::reference
