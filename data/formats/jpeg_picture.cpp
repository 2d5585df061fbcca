#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <jpeglib.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/formats/picture_format.h"

namespace ringgrad {
namespace {

// libjpeg reports an error by calling a function that must not return.
struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
  int64_t most_scans = 0;
  jpeg_progress_mgr progress;
};
void keep_text(j_common_ptr jpeg) {
  (*jpeg->err->format_message)(jpeg, reinterpret_cast<JpegErrors*>(jpeg->err)->text);
}
[[noreturn]] void leave_with_text(j_common_ptr jpeg) {
  keep_text(jpeg);
  std::longjmp(reinterpret_cast<JpegErrors*>(jpeg->err)->back, 1);
}

// libjpeg calls this while it reads one scan after the other.
void count_scans(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= errors->most_scans) return;
  constexpr const char* kText = "it has more than the scans that are read of a file of its size";
  std::memcpy(errors->text, kText, std::strlen(kText) + 1);
  std::longjmp(errors->back, 1);
}

struct JpegSize {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  int orientation = 1;
};

// Converts CMYK to RGB in place. Adobe's programs write CMYK inverted.
void to_rgb(uint8_t* pixels, int64_t count, bool inverted) {
  const auto light = [&](uint8_t ink) { return inverted ? ink : 255 - ink; };
  uint8_t* out = pixels;  // writes after the bytes are read
  for (const uint8_t* in = pixels; in < pixels + 4 * count; in += 4)
    for (int c = 0; c < 3; ++c)
      *out++ = static_cast<uint8_t>((light(in[c]) * light(in[3]) + 127) / 255);
}

// Reads the size, and also the interleaved pixels if `out` is not null. Returns false and sets
// errors.text on any problem. This includes warnings, because they mean that pixels were made up.
// No object in this function has a destructor, because longjmp() would skip it.
bool decode_jpeg(const std::vector<uint8_t>& bytes, JpegSize& size, uint8_t* out,
                 JpegErrors& errors) {
  jpeg_decompress_struct jpeg;
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = leave_with_text;
  errors.manager.output_message = keep_text;
  if (setjmp(errors.back)) {
    jpeg_destroy_decompress(&jpeg);
    return false;
  }
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, bytes.data(), bytes.size());
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xFFFF);
  jpeg_read_header(&jpeg, TRUE);
  const bool inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  const bool gray = jpeg.jpeg_color_space == JCS_GRAYSCALE;
  jpeg.out_color_space = gray ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
  size = {jpeg.image_height, jpeg.image_width, gray ? 1 : inks ? 4 : 3};
  for (const jpeg_marker_struct* m = jpeg.marker_list; m != nullptr; m = m->next)
    if (m->data_length > 6 && std::memcmp(m->data, "Exif\0", 6) == 0)
      size.orientation = orientation_of(m->data + 6, m->data_length - 6);
  if (out) {
    errors.progress.progress_monitor = count_scans;
    jpeg.progress = &errors.progress;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = out + jpeg.output_scanline * size.width * size.channels;
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    if (inks) to_rgb(out, size.height * size.width, jpeg.saw_Adobe_marker);
    jpeg_finish_decompress(&jpeg);
  }
  jpeg_destroy_decompress(&jpeg);
  return errors.manager.num_warnings == 0;
}

}  // namespace

Tensor read_jpeg(const PictureFile& file) {
  const std::string& path = file.path;
  const std::vector<uint8_t> bytes = file.bytes();
  JpegErrors errors;
  JpegSize size;
  CHECK_AS(DataError, decode_jpeg(bytes, size, nullptr, errors), "image: ", path, ": ",
           errors.text);
  errors.most_scans = most_scans(file, size.width, size.height);
  std::vector<uint8_t> pixels(size.height * size.width * size.channels);
  CHECK_AS(DataError, decode_jpeg(bytes, size, pixels.data(), errors), "image: ", path, ": ",
           errors.text);
  return upright(planes(pixels, std::min<int64_t>(3, size.channels), size.height, size.width),
                 size.orientation);
}

}  // namespace ringgrad
