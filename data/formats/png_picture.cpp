#include <png.h>

#include <cstring>
#include <memory>

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/formats/picture_format.h"

namespace ringgrad {
namespace {

// Returns how the camera was held, from the chunk eXIf: chunks have a length, a name, bytes, a sum.
int orientation_in(const std::vector<uint8_t>& bytes) {
  constexpr size_t kSignature = 8;
  constexpr size_t kAround = 12;  // bytes of a chunk that are not its content
  for (size_t at = kSignature; at + kAround <= bytes.size();) {
    const uint8_t* chunk = bytes.data() + at;
    const size_t length = size_t{chunk[0]} << 24 | chunk[1] << 16 | chunk[2] << 8 | chunk[3];
    if (length > bytes.size() - at - kAround) break;
    if (std::memcmp(chunk + 4, "eXIf", 4) == 0) return orientation_of(chunk + 8, length);
    at += length + kAround;
  }
  return 1;
}

}  // namespace

// Pixels come with their alpha and are composed with white here, because libpng would mix them as
// linear light, unlike all other programs. A 16-bit file without a colour profile has the same
// values as an 8-bit file, divided by 257.
Tensor read_png(const PictureFile& file) {
  const std::string& path = file.path;
  const std::vector<uint8_t> bytes = file.bytes();
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  CHECK_AS(DataError, png_image_begin_read_from_memory(&png, bytes.data(), bytes.size()),
           "image: ", path, ": ", png.message);
  const std::unique_ptr<png_image, decltype(&png_image_free)> owner(&png, png_image_free);
  const int64_t height = png.height;
  const int64_t width = png.width;
  (void)most_scans(file, width, height);
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const int64_t channels = png.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
  png.format = channels == 3 ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(png));
  const bool read = png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr);
  CHECK_AS(DataError, read, "image: ", path, ": ", png.message);
  return upright(planes_over_white(std::move(pixels), channels, height, width),
                 orientation_in(bytes));
}

}  // namespace ringgrad
