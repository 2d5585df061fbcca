#include "ringgrad/data/formats/picture_format.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

// A few bytes can claim many pixels, once or in many scans that refine them. This many pixels are
// read of any file, and of a larger one only in proportion to its bytes.
constexpr int64_t kMaxSide = 16384;
constexpr int64_t kFreePixels = int64_t{1} << 25;
constexpr int64_t kPixelsPerByte = 1024;
constexpr int64_t kMaxScans = 100;

// Reads numbers of an EXIF block in the byte order that it declares. Beyond its end they are 0.
struct ExifBlock {
  const uint8_t* bytes;
  size_t size;
  bool little = false;
  uint32_t number(size_t at, int width) const {
    if (at > size || size - at < static_cast<size_t>(width)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < width; ++i)
      value = value << 8 | bytes[little ? at + width - 1 - i : at + i];
    return value;
  }
};

}  // namespace

std::vector<uint8_t> PictureFile::bytes() const {
  Classic<std::ifstream> in(path, std::ios::binary);
  std::vector<uint8_t> all(size);
  in.read(reinterpret_cast<char*>(all.data()), size);
  CHECK_AS(DataError, in.good(), "image: cannot read ", path, ": ", std::strerror(errno));
  return all;
}

int64_t most_scans(const PictureFile& file, int64_t width, int64_t height) {
  const auto& [path, bytes] = file;
  CHECK_AS(DataError, width <= kMaxSide && height <= kMaxSide, "image: ", path, " is ", width,
           " x ", height, ", expected at most ", kMaxSide, " pixels a side");
  const int64_t pixels = std::max<int64_t>(1, width * height);
  const int64_t scans = std::max(kFreePixels, kPixelsPerByte * bytes) / pixels;
  CHECK_AS(DataError, scans > 0, "image: ", path, " is ", width, " x ", height, " in ", bytes,
           " bytes, expected at most ", kPixelsPerByte, " pixels for a byte");
  return std::min(scans, kMaxScans);
}

Tensor planes(const std::vector<uint8_t>& pixels, int64_t channels, int64_t height, int64_t width) {
  Tensor image = empty({channels, height, width}, {.dtype = DType::UInt8});
  uint8_t* out = image.data<uint8_t>();
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < height * width; ++i)
      out[c * height * width + i] = pixels[i * channels + c];
  return image;
}

Tensor planes_over_white(std::vector<uint8_t> pixels, int64_t channels, int64_t height,
                         int64_t width) {
  uint8_t* out = pixels.data();  // writes after the bytes are read
  for (const uint8_t* in = pixels.data(); in < pixels.data() + pixels.size(); in += channels + 1)
    for (int64_t c = 0; c < channels; ++c)
      *out++ =
          static_cast<uint8_t>((in[channels] * in[c] + (255 - in[channels]) * 255 + 127) / 255);
  return planes(pixels, channels, height, width);
}

int orientation_of(const uint8_t* exif, size_t size) {
  ExifBlock tiff{exif, size};
  constexpr uint32_t kOrientation = 274;
  tiff.little = tiff.size > 0 && tiff.bytes[0] == 'I';
  const size_t directory = tiff.number(4, 4);
  const uint32_t entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i)
    if (const size_t at = directory + 2 + 12 * i; tiff.number(at, 2) == kOrientation) {
      const uint32_t value = tiff.number(at + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  return 1;
}

Tensor upright(const Tensor& image, int orientation) {
  if (orientation == 1) return image;
  // From 5 on rows and columns change places.
  const bool turned = orientation >= 5;
  const int64_t height = image.size(turned ? 2 : 1);
  const int64_t width = image.size(turned ? 1 : 2);
  const Tensor out = empty({image.size(0), height, width}, {.dtype = DType::UInt8});
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  uint8_t* to = out.data<uint8_t>();
  for (int64_t c = 0; c < image.size(0); ++c) {
    const uint8_t* plane = image.data<uint8_t>() + c * height * width;
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const int64_t row = from_below ? height - 1 - y : y;
        const int64_t column = from_right ? width - 1 - x : x;
        *to++ = turned ? plane[column * height + row] : plane[row * width + column];
      }
  }
  return out;
}

}  // namespace ringgrad
