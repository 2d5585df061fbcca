// Formats of pictures that need no library: PGM and PPM, and BMP.
#include <algorithm>
#include <bit>
#include <fstream>
#include <utility>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/letters.h"
#include "ringgrad/data/formats/picture_format.h"

namespace ringgrad {
namespace {

// Reads a number of a PGM or PPM header. Comments run from # to the end of the line.
int64_t read_number(std::istream& in, const std::string& path, const char* what) {
  while (is_space(static_cast<char>(in.peek())) || in.peek() == '#')
    if (in.get() == '#')
      while (in && in.get() != '\n') {
      }
  int64_t value = -1;
  in >> value;
  CHECK_AS(DataError, in && value >= 1 && value <= 65535, "image: ", path, ": the header's ", what,
           " is missing or out of range, expected 1 to 65535");
  return value;
}

}  // namespace

Tensor read_pnm(const PictureFile& file) {
  const std::string& path = file.path;
  Classic<std::ifstream> in(path, std::ios::binary);
  in.get();
  const bool colour = in.get() == '6';
  const int64_t width = read_number(in, path, "width");
  const int64_t height = read_number(in, path, "height");
  const int64_t largest = read_number(in, path, "largest value");
  CHECK_AS(DataError, largest == 255, "image: ", path, ": the largest value is ", largest,
           ", expected 255");
  in.get();  // one white space ends the header
  CHECK_AS(DataError, in, "image: ", path, " ends with its header, expected ", width, " x ", height,
           " pixels after it");
  const int64_t channels = colour ? 3 : 1;
  const int64_t start = in.tellg();
  const int64_t wanted = width * height * channels;
  in.seekg(0, std::ios::end);
  const int64_t found = static_cast<int64_t>(in.tellg()) - start;
  (void)most_scans({path, found}, width, height);
  CHECK_AS(DataError, found >= wanted, "image: ", path, ": ", found,
           " bytes of pixels from offset ", start, ", expected ", wanted);
  in.seekg(start);
  std::vector<uint8_t> pixels(wanted);
  in.read(reinterpret_cast<char*>(pixels.data()), wanted);
  return planes(pixels, channels, height, width);
}

namespace {

// Numbers of a BMP, little-endian. A file that ends before them is an error.
struct Bmp {
  const std::vector<uint8_t>& bytes;
  const std::string& path;

  uint32_t number(size_t at, size_t width) const {
    CHECK_AS(DataError, at + width <= bytes.size(), "image: ", path, " ends after ", bytes.size(),
             " bytes, expected more of a BMP");
    uint32_t value = 0;
    for (size_t i = 0; i < width; ++i) value |= static_cast<uint32_t>(bytes[at + i]) << (8 * i);
    return value;
  }
};

// Returns the bits of a pixel that belong to a channel, as 0 to 255.
uint8_t channel_of(uint32_t pixel, uint32_t mask) {
  const uint32_t most = mask == 0 ? 0 : mask >> std::countr_zero(mask);
  if (most == 0) return 0;
  const uint64_t value = (pixel & mask) >> std::countr_zero(mask);
  return static_cast<uint8_t>((value * 255 + most / 2) / most);
}

}  // namespace

// The header is Windows' of 40 bytes or a longer one (BITMAPINFOHEADER), or OS/2's of 12.
Tensor read_bmp(const PictureFile& file) {
  const std::vector<uint8_t> bytes = file.bytes();
  const Bmp bmp{bytes, file.path};
  const size_t start = bmp.number(10, 4);
  const size_t header = bmp.number(14, 4);
  const bool old = header == 12;
  CHECK_AS(DataError, old || header >= 40, "image: ", file.path, " has a BMP header of ", header,
           " bytes, expected 12, or 40 and more");
  const auto of_32_bits = [&](size_t at) { return static_cast<int32_t>(bmp.number(at, 4)); };
  const int64_t width = old ? int64_t{bmp.number(18, 2)} : of_32_bits(18);
  const int64_t rows = old ? int64_t{bmp.number(20, 2)} : of_32_bits(22);  // < 0: from the top
  const int64_t height = std::abs(rows);
  const auto bits = bmp.number(old ? 24 : 28, 2);
  const auto compression = old ? 0 : bmp.number(30, 4);
  constexpr uint32_t kMasks = 3;  // the colours' bits are told
  CHECK_AS(DataError, compression == 0 || compression == kMasks, "image: ", file.path,
           " is a compressed BMP, which is not read; convert it to PNG or JPEG");
  CHECK_AS(DataError, width > 0 && height > 0, "image: ", file.path, " is ", width, " x ", height,
           ", expected more than nothing");
  CHECK_AS(DataError, bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32,
           "image: ", file.path, " has ", bits, " bits a pixel, expected 1, 4, 8, 16, 24 or 32");
  (void)most_scans(file, width, height);
  const size_t stride = (static_cast<size_t>(width) * bits + 31) / 32 * 4;
  CHECK_AS(DataError, start <= bytes.size() && stride * height <= bytes.size() - start,
           "image: ", file.path, ": ", bytes.size(), " bytes, expected ", stride * height,
           " of pixels from offset ", start);
  uint32_t masks[4] = {0xFF0000, 0xFF00, 0xFF, 0};  // red, green, blue, alpha
  if (bits == 16) std::copy_n(std::to_array<uint32_t>({0x7C00, 0x3E0, 0x1F}).begin(), 3, masks);
  constexpr size_t kWithAlpha = 56;  // bytes of the shortest header that tells the alpha's bits
  if (compression == kMasks)
    for (size_t c = 0; c < (header < kWithAlpha ? 3 : 4); ++c) masks[c] = bmp.number(54 + 4 * c, 4);
  const size_t palette = 14 + header + (compression == kMasks && header == 40 ? 12 : 0);
  const size_t colour = old ? 3 : 4;  // bytes of one in the palette: blue, green, red
  std::vector<uint8_t> pixels;
  pixels.reserve(static_cast<size_t>(4 * width * height));
  for (int64_t y = 0; y < height; ++y) {
    const size_t row = start + stride * static_cast<size_t>(rows < 0 ? y : height - 1 - y);
    for (int64_t x = 0; x < width; ++x) {
      const size_t bit = static_cast<size_t>(x) * bits;
      if (bits <= 8) {
        const uint32_t index =
            bytes[row + bit / 8] >> (8 - bits - bit % 8) & ((uint32_t{1} << bits) - 1);
        const size_t at = palette + colour * index;
        CHECK_AS(DataError, at + colour <= start, "image: ", file.path, " has a pixel of colour ",
                 index, ", which its palette lacks");
        for (size_t c = 0; c < 3; ++c)
          pixels.push_back(static_cast<uint8_t>(bmp.number(at + 2 - c, 1)));
        pixels.push_back(255);
      } else {
        const uint32_t pixel = bmp.number(row + bit / 8, bits / 8);
        for (size_t c = 0; c < 3; ++c) pixels.push_back(channel_of(pixel, masks[c]));
        pixels.push_back(masks[3] == 0 ? 255 : channel_of(pixel, masks[3]));
      }
    }
  }
  return planes_over_white(std::move(pixels), 3, height, width);
}

}  // namespace ringgrad
