// Reading one image from a user's file: PNG (where built with libpng) and binary PGM or PPM.
#pragma once

#include <string>

#include "ringgrad/core/tensor.h"

namespace ringgrad::program {

// uint8 [C, H, W], C = 1 or 3. Throws DataError naming the file, the offset and what is wrong with it.
Tensor read_image(const std::string& path);

// float32 [1, channels, size, size] in [0, 255]: gray and colour converted, resized with a triangle filter (bilinear
// upwards, averaging over areas downwards), nothing else.
Tensor fit_image(const Tensor& image, int64_t channels, int64_t size);

}  // namespace ringgrad::program
