#include <tiffio.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/formats/picture_format.h"

namespace ringgrad {
namespace {

// The file that libtiff reads, and the first reason that it gives.
struct TiffReader {
  std::vector<uint8_t> bytes;
  uint64_t at = 0;
  std::string reason;
};
TiffReader& reader_of(thandle_t handle) { return *static_cast<TiffReader*>(handle); }

tmsize_t read_some(thandle_t handle, void* out, tmsize_t most) {
  TiffReader& reader = reader_of(handle);
  const uint64_t left = reader.bytes.size() - std::min<uint64_t>(reader.at, reader.bytes.size());
  const auto count = std::min<uint64_t>(static_cast<uint64_t>(most), left);
  if (count > 0) std::memcpy(out, reader.bytes.data() + reader.at, count);
  reader.at += count;
  return static_cast<tmsize_t>(count);
}
tmsize_t write_nothing(thandle_t, void*, tmsize_t) { return -1; }
toff_t seek(thandle_t handle, toff_t to, int from) {
  TiffReader& reader = reader_of(handle);
  const uint64_t begin = from == SEEK_SET ? 0 : from == SEEK_CUR ? reader.at : reader.bytes.size();
  return reader.at = begin + to;
}
int close_nothing(thandle_t) { return 0; }
toff_t size_of(thandle_t handle) { return reader_of(handle).bytes.size(); }

int keep_reason(TIFF*, void* user, const char*, const char* format, va_list values) {
  TiffReader& reader = reader_of(user);
  char text[256];
  if (reader.reason.empty() && std::vsnprintf(text, sizeof text, format, values) > 0)
    reader.reason = text;
  return 1;  // it is not printed
}
int ignore(TIFF*, void*, const char*, const char*, va_list) { return 1; }

using Tiff = std::unique_ptr<TIFF, decltype(&TIFFClose)>;
Tiff opened(const PictureFile& file, TiffReader& reader) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(
      TIFFOpenOptionsAlloc(), TIFFOpenOptionsFree);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), keep_reason, &reader);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore, &reader);
  Tiff tiff(TIFFClientOpenExt(file.path.c_str(), "rm", &reader, read_some, write_nothing, seek,
                              close_nothing, size_of, nullptr, nullptr, options.get()),
            TIFFClose);
  CHECK_AS(DataError, tiff, "image: ", file.path, " is a damaged TIFF: ", reader.reason);
  return tiff;
}

// Throws DataError if a strip or a tile, which is read at once, is far larger than the picture.
void check_parts(const PictureFile& file, TIFF* tiff, int64_t pixels) {
  constexpr uint64_t kBytesOfPixel = 32;  // four channels of float64
  constexpr uint64_t kFree = 1 << 20;     // a small picture's tile is larger than the picture
  const uint64_t part = TIFFIsTiled(tiff) ? TIFFTileSize64(tiff) : TIFFStripSize64(tiff);
  const uint64_t most = kBytesOfPixel * std::max<uint64_t>(kFree, static_cast<uint64_t>(pixels));
  CHECK_AS(DataError, part <= most, "image: ", file.path, " has a part of ", part,
           " bytes, expected at most ", most, " for its size");
}

}  // namespace

Tensor read_tiff(const PictureFile& file) {
  TiffReader reader{.bytes = file.bytes(), .at = 0, .reason = ""};
  const Tiff tiff = opened(file, reader);
  uint32_t width = 0;
  uint32_t height = 0;
  uint16_t orientation = ORIENTATION_TOPLEFT;
  uint16_t photometric = PHOTOMETRIC_RGB;
  TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height);
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_ORIENTATION, &orientation);
  TIFFGetField(tiff.get(), TIFFTAG_PHOTOMETRIC, &photometric);
  CHECK_AS(DataError, width > 0 && height > 0, "image: ", file.path, " is ", width, " x ", height,
           ", expected more than nothing");
  (void)most_scans(file, width, height);
  check_parts(file, tiff.get(), int64_t{width} * height);
  if (orientation < 1 || orientation > 8) orientation = ORIENTATION_TOPLEFT;
  std::vector<uint32_t> raster(static_cast<size_t>(width) * height);
  // Asked for the orientation that it has, libtiff leaves rows and columns as they are.
  const bool read =
      TIFFReadRGBAImageOriented(tiff.get(), width, height, raster.data(), orientation, 1);
  CHECK_AS(DataError, read && reader.reason.empty(), "image: ", file.path,
           " is a TIFF that cannot be read: ", reader.reason);
  const bool gray = photometric == PHOTOMETRIC_MINISBLACK || photometric == PHOTOMETRIC_MINISWHITE;
  std::vector<uint8_t> pixels;
  pixels.reserve((gray ? 1 : 3) * raster.size());
  for (const uint32_t value : raster) {
    // Its colours have been multiplied by their alpha: over white the rest is white.
    const uint32_t white = 255 - TIFFGetA(value);
    pixels.push_back(static_cast<uint8_t>(std::min<uint32_t>(255, TIFFGetR(value) + white)));
    if (gray) continue;
    pixels.push_back(static_cast<uint8_t>(std::min<uint32_t>(255, TIFFGetG(value) + white)));
    pixels.push_back(static_cast<uint8_t>(std::min<uint32_t>(255, TIFFGetB(value) + white)));
  }
  return upright(planes(pixels, gray ? 1 : 3, height, width), orientation);
}

}  // namespace ringgrad
