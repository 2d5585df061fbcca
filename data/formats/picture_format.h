// A format of pictures: a file of its own decodes it, with a library or without one. image_file.cpp
// has the list of them. A new format is such a file, a line there, and one in CMakeLists.txt for
// its library.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct PictureFile {
  std::string path;
  int64_t size;  // in bytes

  // Reads the whole file. Throws DataError.
  std::vector<uint8_t> bytes() const;
};

// Each decodes the file to uint8 [C, H, W], C = 1 or 3, as read_image() promises. Throws DataError.
Tensor read_pnm(const PictureFile& file);
Tensor read_bmp(const PictureFile& file);  // without compression
Tensor read_png(const PictureFile& file);
Tensor read_jpeg(const PictureFile& file);
Tensor read_webp(const PictureFile& file);  // of several pictures the first
Tensor read_gif(const PictureFile& file);   // likewise
Tensor read_tiff(const PictureFile& file);  // likewise

// Returns how many scans a picture of this size may have, which are read one after the other. A few
// bytes can claim many pixels: 2^25 pixels are read of any file, and of a larger one 1,024 for a
// byte. Throws DataError if the picture may have none.
int64_t most_scans(const PictureFile& file, int64_t width, int64_t height);

// Converts interleaved bytes [H, W, C] to planes [C, H, W].
Tensor planes(const std::vector<uint8_t>& pixels, int64_t channels, int64_t height, int64_t width);
// The same of pixels that have an alpha behind their C channels, composed with white.
Tensor planes_over_white(std::vector<uint8_t> pixels, int64_t channels, int64_t height,
                         int64_t width);

// Returns how the camera was held: 1 to 8, as in TIFF's tag 274, or 1 if the EXIF block does not
// say. The block begins with II or MM.
int orientation_of(const uint8_t* exif, size_t size);
// Returns the picture upright, [C, H, W], from how the camera was held.
Tensor upright(const Tensor& image, int orientation);

}  // namespace ringgrad
