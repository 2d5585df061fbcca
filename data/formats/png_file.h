// Encodes pixels as a PNG file.
#pragma once

#include <cstdint>
#include <string>

namespace ringgrad {

// Takes [channels, height, width] bytes, channels 1 or 3, and uses every `step`-th pixel of every
// `step`-th line.
std::string png_file(const uint8_t* pixels, int64_t channels, int64_t height, int64_t width,
                     int64_t step = 1);

}  // namespace ringgrad
