// Reads one image from a user's file: binary PGM or PPM, and PNG and JPEG if built with libpng and
// libjpeg.
#pragma once

#include <string>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Returns uint8 [C, H, W], C = 1 or 3. 16 bits are rounded to 8. Transparent pixels are composed
// with white in bytes: round((a · c + (255 − a) · 255) / 255). A JPEG is turned upright according
// to its EXIF, and CMYK becomes RGB. Throws DataError and OutOfMemoryError that name the file and
// what is wrong with it, including its format if that is none of these.
Tensor read_image(const std::string& path);
bool reads_png();  // true if this build does
bool reads_jpeg();

// Returns float32 [1, channels, size, size] in [0, 255]. Gray and colour are converted, and the
// image is resized with a triangle filter (bilinear upwards, averaging over areas downwards).
Tensor fit_image(const Tensor& image, int64_t channels, int64_t size);
// Reads and fits an image. If memory is short for fitting, too, the error names the file.
Tensor read_fitted_image(const std::string& path, int64_t channels, int64_t size);

}  // namespace ringgrad
