// From the bytes of an image to the floats of a batch: random crop, flip, normalisation and cutout in one pass.
//
// What happens to an image is a pure function of (seed, epoch, index), so it does not depend on which rank or worker
// thread meets it, on the batch size, or on where training was resumed.
#pragma once

#include <cstdint>
#include <vector>

namespace ringgrad {

struct ImageTransform {
  int crop_padding = 0;          // pad by so many black pixels on each side, then crop back at a random place
  bool flip = false;             // mirror left and right, every other time
  int cutout = 0;                // set a square of this side, at a random place, to 0 (DeVries and Taylor 2017)
  std::vector<float> mean = {};  // per channel, or one for all, or empty (0): y = (pixel / 255 - mean) / std
  std::vector<float> std = {};   // the same; empty is 1
  uint64_t seed = 0;
};

// What is done to one image: crop by (dy, dx), then mirror, then clear the rows and columns of the cut.
struct Augmentation {
  int dy = 0, dx = 0;
  bool flip = false;
  int cut_top = 0, cut_bottom = 0, cut_left = 0, cut_right = 0;
};

Augmentation draw_augmentation(const ImageTransform& transform, int height, int width, int64_t epoch, int64_t index);

// image: uint8 [channels, height, width]; out: float [channels, height, width].
void apply_transform(const ImageTransform& transform, const Augmentation& augmentation, const uint8_t* image,
                     int channels, int height, int width, float* out);

// Throws Error unless the transform can be applied to images with so many channels.
void check_transform(const ImageTransform& transform, int64_t channels);

}  // namespace ringgrad
