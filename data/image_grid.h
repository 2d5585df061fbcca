// Images side by side, and as picture files: torchvision.utils' make_grid and save_image.
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
  // Moves value_range to [0, 1]: without one the least and the largest of all images, or with
  // scale_each of each.
  bool normalize = false;
  std::optional<std::pair<double, double>> value_range = {};
  bool scale_each = false;
};

// images [N, C, H, W], [C, H, W] or [H, W], floating or uint8, on any device; gray ones become
// three equal channels. Float32 (uint8 of uint8) [3, height, width] on the CPU, without history:
// rows of nrow images with `padding` pixels around each. One image stays as it is, without padding.
// Throws ShapeError where there is none.
Tensor make_grid(const Tensor& images, const ImageGridOptions& options = {});

// The grid as a .png or .ppm file, a PNG where the name has no ending, such as a pipe's: floating
// values from 0 to 1 become bytes, uint8 ones are bytes. Throws IoError, a file of that name is
// then as it was; Error on another name.
void save_image(const Tensor& images, const std::filesystem::path& path,
                const ImageGridOptions& options = {});

}  // namespace ringgrad
