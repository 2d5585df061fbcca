#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/formats/picture_format.h"

namespace ringgrad {
namespace {

struct Reader {
  std::vector<uint8_t> bytes;
  size_t at = 0;
};
int read_some(GifFileType* gif, GifByteType* out, int most) {
  auto* reader = static_cast<Reader*>(gif->UserData);
  const size_t count = std::min<size_t>(most, reader->bytes.size() - reader->at);
  std::memcpy(out, reader->bytes.data() + reader->at, count);
  reader->at += count;
  return static_cast<int>(count);
}

struct Closed {
  void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
};
using Gif = std::unique_ptr<GifFileType, Closed>;

[[noreturn]] void fail(const PictureFile& file, int code) {
  const char* words = GifErrorString(code);
  throw DataError(str("image: ", file.path, " is a damaged GIF: ", words ? words : "no reason"));
}

// Goes on to the first picture, and returns the number of its transparent colour, or -1.
int go_to_picture(const PictureFile& file, GifFileType* gif) {
  int transparent = NO_TRANSPARENT_COLOR;
  for (;;) {
    GifRecordType type;
    if (DGifGetRecordType(gif, &type) == GIF_ERROR) fail(file, gif->Error);
    if (type == IMAGE_DESC_RECORD_TYPE) break;
    CHECK_AS(DataError, type == EXTENSION_RECORD_TYPE, "image: ", file.path, " has no picture");
    int kind = 0;
    GifByteType* block = nullptr;
    int worked = DGifGetExtension(gif, &kind, &block);
    while (worked == GIF_OK && block) {
      GraphicsControlBlock control{};
      if (kind == GRAPHICS_EXT_FUNC_CODE &&
          DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
        transparent = control.TransparentColor;
      worked = DGifGetExtensionNext(gif, &block);
    }
    if (worked == GIF_ERROR) fail(file, gif->Error);
  }
  if (DGifGetImageDesc(gif) == GIF_ERROR) fail(file, gif->Error);
  return transparent;
}

// Returns the rows in the order in which the file has them: an interlaced one has every eighth,
// those between, and so on.
std::vector<int64_t> order_of_rows(const GifImageDesc& image) {
  std::vector<int64_t> rows;
  if (image.Interlace) {
    constexpr int64_t kPasses[][2] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
    for (const auto& [first, step] : kPasses)
      for (int64_t y = first; y < image.Height; y += step) rows.push_back(y);
  } else {
    for (int64_t y = 0; y < image.Height; ++y) rows.push_back(y);
  }
  return rows;
}

}  // namespace

// The first picture on its canvas, which is white where nothing covers it.
Tensor read_gif(const PictureFile& file) {
  Reader reader{file.bytes(), 0};
  int code = 0;
  const Gif gif(DGifOpen(&reader, read_some, &code));
  if (!gif) fail(file, code);
  const int64_t width = gif->SWidth;
  const int64_t height = gif->SHeight;
  CHECK_AS(DataError, width > 0 && height > 0, "image: ", file.path, " is ", width, " x ", height,
           ", expected more than nothing");
  (void)most_scans(file, width, height);
  const int transparent = go_to_picture(file, gif.get());
  const GifImageDesc& image = gif->Image;
  (void)most_scans(file, image.Width, image.Height);
  const ColorMapObject* colours = image.ColorMap ? image.ColorMap : gif->SColorMap;
  CHECK_AS(DataError, colours, "image: ", file.path, " has no colours");
  std::vector<uint8_t> pixels(static_cast<size_t>(3 * width * height), 255);
  std::vector<GifPixelType> line(image.Width);
  for (const int64_t row : order_of_rows(image)) {
    if (DGifGetLine(gif.get(), line.data(), image.Width) == GIF_ERROR) fail(file, gif->Error);
    const int64_t y = image.Top + row;
    for (int64_t i = 0; i < image.Width && y < height; ++i) {
      const int64_t x = image.Left + i;
      if (x >= width || line[i] == transparent || line[i] >= colours->ColorCount) continue;
      const GifColorType& colour = colours->Colors[line[i]];
      uint8_t* out = pixels.data() + 3 * (y * width + x);
      out[0] = colour.Red;
      out[1] = colour.Green;
      out[2] = colour.Blue;
    }
  }
  return planes(pixels, 3, height, width);
}

}  // namespace ringgrad
