#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>
#include <new>

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/formats/picture_format.h"

namespace ringgrad {
namespace {

// Returns how the camera was held, from the chunk EXIF. Some programs write a JPEG's six bytes
// before the block.
int orientation_in(const WebPData& data) {
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> parts(WebPDemux(&data),
                                                                       WebPDemuxDelete);
  WebPChunkIterator exif{};
  int orientation = 1;
  if (parts && WebPDemuxGetChunk(parts.get(), "EXIF", 1, &exif)) {
    const size_t skipped = exif.chunk.size > 6 && exif.chunk.bytes[0] == 'E' ? 6 : 0;
    orientation = orientation_of(exif.chunk.bytes + skipped, exif.chunk.size - skipped);
  }
  WebPDemuxReleaseChunkIterator(&exif);
  return orientation;
}

// Returns the first picture of an animation, [H, W, 4].
std::vector<uint8_t> first_frame(const PictureFile& file, const WebPData& data, size_t size) {
  const std::unique_ptr<WebPAnimDecoder, decltype(&WebPAnimDecoderDelete)> frames(
      WebPAnimDecoderNew(&data, nullptr), WebPAnimDecoderDelete);
  uint8_t* canvas = nullptr;
  int milliseconds = 0;
  CHECK_AS(DataError, frames && WebPAnimDecoderGetNext(frames.get(), &canvas, &milliseconds),
           "image: ", file.path, " is a damaged WebP");
  return {canvas, canvas + size};
}

}  // namespace

Tensor read_webp(const PictureFile& file) {
  const std::vector<uint8_t> bytes = file.bytes();
  WebPDecoderConfig config;
  WebPInitDecoderConfig(&config);
  CHECK_AS(DataError, WebPGetFeatures(bytes.data(), bytes.size(), &config.input) == VP8_STATUS_OK,
           "image: ", file.path, " is a damaged WebP");
  const int64_t width = config.input.width;
  const int64_t height = config.input.height;
  (void)most_scans(file, width, height);
  const WebPData data{bytes.data(), bytes.size()};
  std::vector<uint8_t> pixels;
  if (config.input.has_animation) {
    pixels = first_frame(file, data, static_cast<size_t>(4 * width * height));
  } else {
    pixels.resize(static_cast<size_t>(4 * width * height));
    config.output.colorspace = MODE_RGBA;
    config.output.is_external_memory = 1;
    config.output.u.RGBA = {pixels.data(), static_cast<int>(4 * width), pixels.size()};
    const VP8StatusCode status = WebPDecode(bytes.data(), bytes.size(), &config);
    if (status == VP8_STATUS_OUT_OF_MEMORY) throw std::bad_alloc();
    CHECK_AS(DataError, status == VP8_STATUS_OK, "image: ", file.path, " is a WebP that ",
             status == VP8_STATUS_NOT_ENOUGH_DATA ? "ends too early" : "is damaged");
  }
  return upright(planes_over_white(std::move(pixels), 3, height, width), orientation_in(data));
}

}  // namespace ringgrad
