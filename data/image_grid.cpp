#include "ringgrad/data/image_grid.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/png_file.h"

namespace ringgrad {
namespace {

// Returns [N, C, H, W] float32 on the CPU, as its only owner.
Tensor on_host(const Tensor& images) {
  CHECK(images.defined(), "make_grid: the images are an undefined tensor");
  CHECK_AS(DTypeError, is_floating(images.dtype()) || images.dtype() == DType::UInt8,
           "make_grid: the images are ", images.dtype(), ", expected a floating dtype or uint8");
  Shape shape = images.shape();
  CHECK_AS(ShapeError, shape.dim() >= 2 && shape.dim() <= 4, "make_grid: shape ", shape,
           ", expected [N, C, H, W], [C, H, W] or [H, W]");
  while (shape.dim() < 4) shape.insert(0, 1);
  CHECK_AS(ShapeError, (shape[1] == 1 || shape[1] == 3) && shape.numel() > 0, "make_grid: shape ",
           images.shape(), ", expected at least one image, of 1 or 3 channels");
  const Tensor copy = copy_of(images, {DType::Float32});
  return copy.as_strided(shape, contiguous_strides(shape), copy.storage_offset());
}

void move_range(float* begin, float* end, std::pair<double, double> range) {
  const double width = std::max(range.second - range.first, 1e-5);
  for (float* x = begin; x != end; ++x)
    *x = static_cast<float>(
        (std::clamp(static_cast<double>(*x), range.first, range.second) - range.first) / width);
}

void move_ranges(const Tensor& images, const ImageGridOptions& o) {
  float* const x = images.data<float>();
  const int64_t parts = o.scale_each ? images.size(0) : 1;
  const int64_t part = images.numel() / parts;
  for (int64_t i = 0; i < parts; ++i) {
    float* const begin = x + i * part;
    float* const end = begin + part;
    const auto [least, most] = std::minmax_element(begin, end);
    move_range(begin, end, o.value_range.value_or(std::pair<double, double>(*least, *most)));
  }
}

}  // namespace

Tensor make_grid(const Tensor& images_, const ImageGridOptions& o) {
  CHECK(o.nrow >= 1 && o.padding >= 0, "make_grid: nrow is ", o.nrow, ", padding ", o.padding,
        ", expected at least 1 and 0");
  CHECK(!o.value_range || o.value_range->first < o.value_range->second,
        "make_grid: the value range is empty, expected its lower end first");
  const Tensor images = on_host(images_);
  if (o.normalize) move_ranges(images, o);
  const int64_t count = images.size(0);
  const int64_t channels = images.size(1);
  const int64_t height = images.size(2);
  const int64_t width = images.size(3);
  const int64_t padding = count == 1 ? 0 : o.padding;
  const int64_t columns = std::min(o.nrow, count);
  const int64_t rows = (count + columns - 1) / columns;
  const int64_t step_h = height + padding;
  const int64_t step_w = width + padding;
  const Tensor grid = full({3, rows * step_h + padding, columns * step_w + padding}, o.pad_value);
  for (int64_t n = 0; n < count; ++n)
    for (int64_t c = 0; c < 3; ++c) {
      const int64_t from = (n * channels + (channels == 1 ? 0 : c)) * height * width;
      const int64_t row = n / columns * step_h + padding;
      const int64_t column = n % columns * step_w + padding;
      copy_(grid.as_strided({height, width}, {grid.size(2), 1},
                            (c * grid.size(1) + row) * grid.size(2) + column),
            images.as_strided({height, width}, {width, 1}, images.storage_offset() + from));
    }
  return images_.dtype() == DType::UInt8 && !o.normalize ? copy_of(grid, {DType::UInt8}) : grid;
}

void save_image(const Tensor& images, const std::filesystem::path& path,
                const ImageGridOptions& options) {
  const std::string suffix = path.extension().string();
  CHECK(suffix == ".png" || suffix == ".ppm" || suffix.empty(), "save_image: ", path.string(),
        ", expected a name that ends in .png or .ppm");
  const Tensor grid = make_grid(images, options);
  const int64_t height = grid.size(1);
  const int64_t width = grid.size(2);
  std::vector<uint8_t> pixels = to_vector<uint8_t>(copy_of(grid, {DType::UInt8}));
  if (grid.dtype() == DType::Float32) {
    const float* x = grid.data<float>();
    for (uint8_t& pixel : pixels)  // NaN becomes black
      pixel = static_cast<uint8_t>(std::min(std::max(*x++ * 255 + 0.5F, 0.0F), 255.0F));
  }
  if (suffix != ".ppm") return write_text(path, png_file(pixels.data(), 3, height, width));
  std::string text = str("P6 ", width, ' ', height, " 255\n");
  for (int64_t i = 0; i < height * width; ++i)
    for (int64_t c = 0; c < 3; ++c)
      text += static_cast<char>(pixels[static_cast<size_t>(c * height * width + i)]);
  write_text(path, text);
}

}  // namespace ringgrad
