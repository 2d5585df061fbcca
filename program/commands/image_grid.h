// Many small images as one picture file.
#pragma once

#include <filesystem>

#include "ringgrad/core/tensor.h"

namespace ringgrad::program {

// images uint8 [N, C, H, W], C = 1 or 3, contiguous: a PNG file of them in rows, about square, a
// gray line between them. Throws IoError; a file of that name is as it was then.
void write_image_grid(const std::filesystem::path& path, const Tensor& images);

}  // namespace ringgrad::program
