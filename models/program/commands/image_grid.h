// Many small images as one picture file.
#pragma once

#include <filesystem>

#include "ringgrad/core/tensor.h"

namespace ringgrad::program {

// images uint8 [N, C, H, W], C = 1 or 3, in rows of as many as make the picture about square, a dark line between them.
// Writes NAME.png, or NAME.ppm where this build has no libpng, and returns its path. Throws IoError; a file of that
// name is as it was then.
std::filesystem::path write_image_grid(const std::filesystem::path& name, const Tensor& images);

}  // namespace ringgrad::program
