#include "ringgrad/program/report/png_data.h"

#include <algorithm>
#include <string_view>

#include "ringgrad/data/formats/png_file.h"

namespace ringgrad::program {

static std::string base64(const std::string& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kDigits[group >> (18 - 6 * k) & 63];
  }
  return out;
}

std::string png_data(const uint8_t* pixels, int64_t channels, int64_t height, int64_t width,
                     int64_t most) {
  const int64_t step = std::max<int64_t>(1, (std::max(height, width) + most - 1) / most);
  return "data:image/png;base64," + base64(png_file(pixels, channels, height, width, step));
}

}  // namespace ringgrad::program
