#include "ringgrad/program/commands/image_grid.h"

#include <cmath>
#include <vector>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/program/report/png.h"

namespace ringgrad::program {

void write_image_grid(const std::filesystem::path& path, const Tensor& images) {
  CHECK(images.dtype() == DType::UInt8 && images.dim() == 4 && images.is_contiguous(),
        "write_image_grid: images ", images.shape(), " ", images.dtype(),
        ", expected contiguous uint8 [N, C, H, W]");
  const int64_t count = images.size(0);
  const int64_t channels = images.size(1);
  const int64_t height = images.size(2);
  const int64_t width = images.size(3);
  const auto columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const int64_t rows = (count + columns - 1) / columns;
  const int64_t all_height = rows * (height + 1) - 1;
  const int64_t all_width = columns * (width + 1) - 1;
  std::vector<uint8_t> pixels(channels * all_height * all_width, 40);
  const uint8_t* in = images.data<uint8_t>();
  for (int64_t n = 0; n < count; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t y = 0; y < height; ++y)
        for (int64_t x = 0; x < width; ++x) {
          const int64_t row = n / columns * (height + 1) + y;
          const int64_t column = n % columns * (width + 1) + x;
          pixels[(c * all_height + row) * all_width + column] = *in++;
        }
  const std::string png = png_file(pixels.data(), channels, all_height, all_width);
  write_text(path, png);
}

}  // namespace ringgrad::program
