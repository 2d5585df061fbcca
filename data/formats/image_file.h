// Reading one image from a user's file: binary PGM or PPM, and where built with libpng and libjpeg
// PNG and JPEG.
#pragma once

#include <string>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// uint8 [C, H, W], C = 1 or 3; 16 bits are rounded to 8, and what is transparent lies before white,
// mixed as bytes are: round((a · c + (255 − a) · 255) / 255). A JPEG is upright, as its EXIF says
// that the camera was held, and CMYK becomes RGB. Throws DataError and OutOfMemoryError, naming the
// file and what is wrong with it, and its format where that is none of these.
Tensor read_image(const std::string& path);
bool reads_png();  // this build does
bool reads_jpeg();

// float32 [1, channels, size, size] in [0, 255]: gray and colour converted, resized with a triangle
// filter (bilinear upwards, averaging over areas downwards), nothing else.
Tensor fit_image(const Tensor& image, int64_t channels, int64_t size);
// Reads and fits it; where memory is short for that, too, the error names the file.
Tensor read_fitted_image(const std::string& path, int64_t channels, int64_t size);

}  // namespace ringgrad
