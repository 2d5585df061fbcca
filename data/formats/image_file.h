// Reads one image from a user's file: binary PGM or PPM, BMP, and those of PNG, JPEG, WebP, GIF and
// TIFF whose libraries this build has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Returns uint8 [C, H, W], C = 1 or 3. 16 bits are rounded to 8, but those of a gray TIFF are cut
// off. Transparent pixels are composed with white in bytes: round((a · c + (255 − a) · 255) / 255).
// A picture is turned upright according to its EXIF, CMYK becomes RGB, and of several pictures in a
// file the first is read. Throws DataError and OutOfMemoryError that name the file and what is
// wrong with it, including its format if that is none of these.
Tensor read_image(const std::string& path);

struct PictureSupport {
  const char* format;   // "PNG"
  const char* package;  // Debian's, with which it is built; "" if it needs none
  bool read;            // by this build
};
std::vector<PictureSupport> picture_support();
bool reads_pictures(std::string_view format);  // true if this build does
// Returns "PNG, JPEG, BMP, PGM and PPM": the formats that this build reads.
std::string names_of_read_formats();

// Returns float32 [1, channels, size, size] in [0, 255]. Gray and colour are converted, and the
// image is resized with a triangle filter (bilinear upwards, averaging over areas downwards).
Tensor fit_image(const Tensor& image, int64_t channels, int64_t size);
// Reads and fits an image. If memory is short for fitting, too, the error names the file.
Tensor read_fitted_image(const std::string& path, int64_t channels, int64_t size);

}  // namespace ringgrad
