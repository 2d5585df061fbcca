// Images side by side, and as picture files, like torchvision.utils' make_grid and save_image.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct ImageGridOptions {
  int64_t nrow = 8;  // images in a row
  int64_t padding = 2;
  double pad_value = 0;
  // Maps value_range to [0, 1]. The default range is the least to the largest value of all images,
  // or with scale_each of each image.
  bool normalize = false;
  std::optional<std::pair<double, double>> value_range = {};
  bool scale_each = false;
};

// images is [N, C, H, W], [C, H, W] or [H, W], floating or uint8, on any device; gray ones become
// three equal channels. Returns float32 [3, height, width] on the CPU, or uint8 from uint8 that is
// not normalized, without history: rows of nrow images with `padding` pixels around each. A single
// image gets no padding. Throws ShapeError if there is none.
Tensor make_grid(const Tensor& images, const ImageGridOptions& options = {});

// Saves the grid as a .png or .ppm file, and as PNG if the name has no ending, such as a pipe's.
// Floating values from 0 to 1 become bytes; uint8 values stay. Throws IoError, after which a file
// of that name is unchanged, and Error on another ending.
void save_image(const Tensor& images, const std::filesystem::path& path,
                const ImageGridOptions& options = {});

}  // namespace ringgrad
