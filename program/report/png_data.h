// Encodes pixels as a picture inside a page.
#pragma once

#include <cstdint>
#include <string>

namespace ringgrad::program {

// "data:image/png;base64,…" of [channels, height, width] bytes, channels 1 or 3. Larger pictures
// are thinned to at most `most` pixels a side, so that a page stays small.
std::string png_data(const uint8_t* pixels, int64_t channels, int64_t height, int64_t width,
                     int64_t most = 40);

}  // namespace ringgrad::program
