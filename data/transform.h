// What is done to the images of a data set on their way into a batch: augmentation (core/kernels/augmentation.h), then
// normalisation. kernels::augment_images does both in one pass.
#pragma once

#include <vector>

#include "ringgrad/core/kernels/augmentation.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct ImageTransform {
  AugmentOptions augment = {};
  std::vector<float> mean = {};  // per channel, or one for all, or empty (0): y = (pixel / 255 - mean) / std
  std::vector<float> std = {};   // the same; empty is 1
};

// Throws Error unless the transform can be applied to images with so many channels.
void check_transform(const ImageTransform& transform, int64_t channels);

// The normalisation as y = scale · pixel + shift.
struct Normalization {
  Tensor scale, shift;  // float32 [channels]
};
// Throws what check_transform throws.
Normalization normalization(const ImageTransform& transform, int64_t channels, Device device = {});

}  // namespace ringgrad
