// Makes a batch of a data set's images.
#pragma once

#include <cstdint>
#include <span>

#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

// Writes these of the images, uint8 [N, C, H, W], into a batch, float32 [B, C, H, W], augmented as
// in this epoch and normalised. REQUIRES: all indices are in [0, N).
using WriteImages = void (*)(const Tensor& batch, const Tensor& images,
                             std::span<const int64_t> indices, int64_t epoch,
                             const Normalization& by, const AugmentOptions& augment);
// In use at first is one that only normalises, and throws Error if images are to be augmented.
// data/augmented_images.cpp replaces it before main.
extern constinit WriteImages write_images;

}  // namespace ringgrad
