#include "ringgrad/data/formats/png_file.h"

#include <zlib.h>

namespace ringgrad {
namespace {

void append_number(std::string& out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xFF);
}

// Appends length, type, content, and the CRC of type and content.
void append_chunk(std::string& png, const std::string& type_and_content) {
  append_number(png, static_cast<uint32_t>(type_and_content.size() - 4));
  png += type_and_content;
  append_number(
      png, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(type_and_content.data()),
                                       static_cast<uInt>(type_and_content.size()))));
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  compress2(reinterpret_cast<Bytef*>(out.data()), &size,
            reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9);
  out.resize(size);
  return out;
}

}  // namespace

std::string png_file(const uint8_t* pixels, int64_t channels, int64_t height, int64_t width,
                     int64_t step) {
  const int64_t rows = (height + step - 1) / step, columns = (width + step - 1) / step;
  std::string lines;
  for (int64_t y = 0; y < rows; ++y) {
    lines += '\0';  // no filter
    for (int64_t x = 0; x < columns; ++x)
      for (int64_t c = 0; c < channels; ++c)
        lines += static_cast<char>(pixels[(c * height + y * step) * width + x * step]);
  }
  std::string png = "\x89PNG\r\n\x1a\n";
  std::string header = "IHDR";
  append_number(header, static_cast<uint32_t>(columns));
  append_number(header, static_cast<uint32_t>(rows));
  // Bit depth, colour type, and the only defined methods.
  header += {'\x08', static_cast<char>(channels == 3 ? 2 : 0), '\0', '\0', '\0'};
  append_chunk(png, header);
  append_chunk(png, "IDAT" + deflated(lines));
  append_chunk(png, "IEND");
  return png;
}

}  // namespace ringgrad
