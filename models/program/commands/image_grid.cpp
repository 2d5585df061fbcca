#include "ringgrad/models/program/commands/image_grid.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <vector>

#ifdef RINGGRAD_PNG
#include <png.h>
#endif

#include "ringgrad/core/base/check.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kGap = 1;  // pixels between images

struct GridPicture {
  int64_t height, width;
  std::vector<uint8_t> pixels;  // [height, width, 3]
};

GridPicture grid_of(const Tensor& images) {
  const int64_t count = images.size(0), channels = images.size(1), height = images.size(2), width = images.size(3);
  const auto columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const int64_t rows = (count + columns - 1) / columns;
  GridPicture p{rows * (height + kGap) - kGap, columns * (width + kGap) - kGap, {}};
  p.pixels.assign(p.height * p.width * 3, 40);
  const uint8_t* in = images.data<uint8_t>();
  for (int64_t n = 0; n < count; ++n)
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        for (int64_t c = 0; c < 3; ++c) {
          const int64_t row = n / columns * (height + kGap) + y, column = n % columns * (width + kGap) + x;
          p.pixels[(row * p.width + column) * 3 + c] =
              in[((n * channels + std::min(c, channels - 1)) * height + y) * width + x];
        }
  return p;
}

}  // namespace

std::filesystem::path write_image_grid(const std::filesystem::path& name, const Tensor& images) {
  CHECK(images.dtype() == DType::UInt8 && images.dim() == 4 && images.is_contiguous(), "write_image_grid: images ",
        images.shape(), " ", images.dtype(), ", expected contiguous uint8 [N, C, H, W]");
  const GridPicture picture = grid_of(images);
  std::filesystem::path path = name, unfinished = name;
  unfinished += ".part";
#ifdef RINGGRAD_PNG
  path += ".png";
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(picture.width);
  png.height = static_cast<png_uint_32>(picture.height);
  png.format = PNG_FORMAT_RGB;
  const bool written = png_image_write_to_file(&png, unfinished.c_str(), 0, picture.pixels.data(), 0, nullptr);
  const std::string problem = png.message;
#else
  path += ".ppm";
  std::ofstream out(unfinished, std::ios::binary);
  out << "P6\n" << picture.width << ' ' << picture.height << "\n255\n";
  out.write(reinterpret_cast<const char*>(picture.pixels.data()), static_cast<std::streamsize>(picture.pixels.size()));
  const bool written = static_cast<bool>(out.flush());
  const std::string problem = std::strerror(errno);
#endif
  std::error_code error;
  if (written) std::filesystem::rename(unfinished, path, error);
  if (!written || error) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    throw IoError(str("image: cannot write ", path.string(), ": ", written ? error.message() : problem));
  }
  return path;
}

}  // namespace ringgrad::program
