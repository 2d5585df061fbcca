// Draws the random augmentation of a training image, the same on every device.
//
// It is a pure function of (seed, epoch, index of the image). So it does not depend on the rank,
// worker thread or device that handles the image, on the batch size, or on where training was
// resumed.
#pragma once

#include <cstdint>

#include "ringgrad/core/kernels/augment_options.h"
#include "ringgrad/core/random.h"

namespace ringgrad {

// Returns the pixel of a row, or the row of an image, that lies at position i of `size` if the
// border mirrors: -1 gives 1.
RINGGRAD_HOST_DEVICE inline int reflected(int i, int size) {
  const int inside = i < 0 ? -i : i < size ? i : 2 * (size - 1) - i;
  // The padding may exceed what there is to mirror.
  return inside < 0 ? 0 : inside < size ? inside : size - 1;
}

// The changes to one image: it is cropped by (dy, dx), then mirrored, then the rows and columns of
// the cut are cleared.
struct Augmentation {
  int dy = 0;
  int dx = 0;
  bool flip = false;
  int cut_top = 0;
  int cut_bottom = 0;
  int cut_left = 0;
  int cut_right = 0;
};

RINGGRAD_HOST_DEVICE inline Augmentation draw_augmentation(const AugmentOptions& o, int height,
                                                           int width, int64_t epoch,
                                                           int64_t index) {
  Augmentation a;
  if (!o.any()) return a;
  // All numbers are always drawn. So switching one augmentation on does not change the others.
  RandomSequence random(o.seed, Purpose::Augmentation, static_cast<uint64_t>(epoch),
                        static_cast<uint64_t>(index));
  a.dy = random.between(-o.crop_padding, o.crop_padding);
  a.dx = random.between(-o.crop_padding, o.crop_padding);
  a.flip = random.between(0, 1) == 1 && o.flip;
  if (o.flip && o.alternate) {  // random in epoch 0, then alternating
    RandomSequence own(o.seed, Purpose::Augmentation, ~uint64_t{0}, static_cast<uint64_t>(index));
    a.flip = (own.between(0, 1) + epoch) % 2 == 1;
  }
  // The square's centre is anywhere in the image, so the square may reach beyond it. DeVries and
  // Taylor found that this matters.
  const int top = random.between(0, height - 1) - o.cutout / 2;
  const int left = random.between(0, width - 1) - o.cutout / 2;
  a.cut_top = top > 0 ? top : 0;
  a.cut_bottom = top + o.cutout < height ? top + o.cutout : height;
  a.cut_left = left > 0 ? left : 0;
  a.cut_right = left + o.cutout < width ? left + o.cutout : width;
  return a;
}

}  // namespace ringgrad
