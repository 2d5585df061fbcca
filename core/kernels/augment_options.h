// The random augmentation of training images (core/kernels/augmentation.h).
#pragma once

#include <cstdint>

#include "ringgrad/core/base/number.h"

namespace ringgrad {

struct AugmentOptions {
  // Pads with this many black pixels on each side, then crops at a random place.
  int crop_padding = 0;
  // Pads with the image mirrored at its border instead of black.
  bool reflect = false;
  // Mirrors left and right with probability 1/2.
  bool flip = false;
  // With flip: mirrors each image in every other epoch, instead of at random (Jordan 2024).
  bool alternate = false;
  // Sets a square of this side at a random place to 0 (DeVries and Taylor 2017).
  int cutout = 0;
  uint64_t seed = 0;

  // Returns true if an image may change.
  RINGGRAD_HOST_DEVICE bool any() const { return crop_padding > 0 || flip || cutout > 0; }
};

}  // namespace ringgrad
