// A whole data set of images in memory, as bytes. One pass gathers, augments and normalises them
// into a batch, which is cheaper than keeping four times as many bytes of floats.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/core/kernels/augment_options.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct ImageDataset {
  std::string name;                  // "mnist"
  Tensor images;                     // uint8 [N, C, H, W], contiguous, on the CPU
  Tensor labels;                     // int64 [N], each in [0, classes.size())
  std::vector<std::string> classes;  // the meaning of each label

  int64_t size() const { return images.defined() ? images.size(0) : 0; }
};

// Throws ShapeError or DTypeError unless the tensors are as the comments above say, and IndexError
// on a label without a class. The loader calls it, so that a data set built by hand cannot make it
// read beyond an end.
void check_dataset_invariants(const ImageDataset& dataset);

// Augmentation, then normalisation. write_images() (loading/) does both in one
// pass.
struct ImageTransform {
  AugmentOptions augment = {};
  // For each channel, one for all, or empty (0): y = (pixel / 255 - mean) / std.
  std::vector<float> mean = {};
  // As for mean, but empty means 1.
  std::vector<float> std = {};
};

// Throws Error unless the transform can be applied to images with this number of channels.
void check_transform(const ImageTransform& transform, int64_t channels);

// The normalisation in the form y = scale · pixel + shift.
struct Normalization {
  // both are float32 [channels]
  Tensor scale;
  Tensor shift;
};
// Throws what check_transform throws.
Normalization normalization(const ImageTransform& transform, int64_t channels, Device device = {});

}  // namespace ringgrad
