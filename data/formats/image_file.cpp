#include "ringgrad/data/formats/image_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <vector>

#include <fmt/format.h>

#ifdef RINGGRAD_PNG
#include <png.h>
#endif
#ifdef RINGGRAD_JPEG
#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>
#endif

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

// A few bytes can claim many pixels, once or in many scans that refine them. This many pixels are
// read of any file, and of a larger one only in proportion to its bytes.
constexpr int64_t kMaxSide = 16384;
constexpr int64_t kFreePixels = int64_t{1} << 25;
constexpr int64_t kPixelsPerByte = 1024;
constexpr int64_t kMaxScans = 100;

// Returns how many scans a picture of this size may have. Throws DataError if it may have none.
int64_t most_scans(const std::string& path, int64_t width, int64_t height, int64_t bytes) {
  CHECK_AS(DataError, width <= kMaxSide && height <= kMaxSide, "image: ", path, " is ", width,
           " x ", height, ", expected at most ", kMaxSide, " pixels a side");
  const int64_t pixels = std::max<int64_t>(1, width * height);
  const int64_t scans = std::max(kFreePixels, kPixelsPerByte * bytes) / pixels;
  CHECK_AS(DataError, scans > 0, "image: ", path, " is ", width, " x ", height, " in ", bytes,
           " bytes, expected at most ", kPixelsPerByte, " pixels for a byte");
  return std::min(scans, kMaxScans);
}

// Converts interleaved bytes [H, W, C] to planes [C, H, W].
Tensor planes(const std::vector<uint8_t>& pixels, int64_t channels, int64_t height, int64_t width) {
  Tensor image = empty({channels, height, width}, {.dtype = DType::UInt8});
  uint8_t* out = image.data<uint8_t>();
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < height * width; ++i)
      out[c * height * width + i] = pixels[i * channels + c];
  return image;
}

// Reads a number of a PGM or PPM header. Comments run from # to the end of the line.
int64_t read_number(std::istream& in, const std::string& path, const char* what) {
  while (is_space(static_cast<char>(in.peek())) || in.peek() == '#')
    if (in.get() == '#')
      while (in && in.get() != '\n') {
      }
  int64_t value = -1;
  in >> value;
  CHECK_AS(DataError, in && value >= 1 && value <= 65535, "image: ", path, ": the header's ", what,
           " is missing or out of range, expected 1 to 65535");
  return value;
}

Tensor read_pnm(std::istream& in, const std::string& path, bool colour) {
  in.seekg(2);
  const int64_t width = read_number(in, path, "width");
  const int64_t height = read_number(in, path, "height");
  const int64_t largest = read_number(in, path, "largest value");
  CHECK_AS(DataError, largest == 255, "image: ", path, ": the largest value is ", largest,
           ", expected 255");
  in.get();  // one white space ends the header
  CHECK_AS(DataError, in, "image: ", path, " ends with its header, expected ", width, " x ", height,
           " pixels after it");
  const int64_t channels = colour ? 3 : 1;
  const int64_t start = in.tellg();
  const int64_t wanted = width * height * channels;
  in.seekg(0, std::ios::end);
  const int64_t found = static_cast<int64_t>(in.tellg()) - start;
  (void)most_scans(path, width, height, found);
  CHECK_AS(DataError, found >= wanted, "image: ", path, ": ", found,
           " bytes of pixels from offset ", start, ", expected ", wanted);
  in.seekg(start);
  std::vector<uint8_t> pixels(wanted);
  in.read(reinterpret_cast<char*>(pixels.data()), wanted);
  return planes(pixels, channels, height, width);
}

#ifdef RINGGRAD_PNG
// Pixels come with their alpha and are composed with white here, because libpng would mix them as
// linear light, unlike all other programs. A 16-bit file without a colour profile has the same
// values as an 8-bit file, divided by 257.
Tensor read_png(const std::string& path, int64_t bytes) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  CHECK_AS(DataError, png_image_begin_read_from_file(&png, path.c_str()), "image: ", path, ": ",
           png.message);
  const std::unique_ptr<png_image, decltype(&png_image_free)> owner(&png, png_image_free);
  const int64_t height = png.height;
  const int64_t width = png.width;
  (void)most_scans(path, width, height, bytes);
  png.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  const int64_t channels = png.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
  png.format = channels == 3 ? PNG_FORMAT_RGBA : PNG_FORMAT_GA;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(png));
  const bool read = png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr);
  CHECK_AS(DataError, read, "image: ", path, ": ", png.message);
  uint8_t* out = pixels.data();  // writes after the bytes are read
  for (const uint8_t* in = pixels.data(); in < pixels.data() + pixels.size(); in += channels + 1)
    for (int64_t c = 0; c < channels; ++c)
      *out++ =
          static_cast<uint8_t>((in[channels] * in[c] + (255 - in[channels]) * 255 + 127) / 255);
  return planes(pixels, channels, height, width);
}
#endif

#ifdef RINGGRAD_JPEG
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

// Reads numbers of an EXIF block in the byte order that it declares. Beyond its end they are 0.
struct ExifBlock {
  const uint8_t* bytes;
  size_t size;
  bool little = false;
  uint32_t number(size_t at, int width) const {
    if (at > size || size - at < static_cast<size_t>(width)) return 0;
    uint32_t value = 0;
    for (int i = 0; i < width; ++i)
      value = value << 8 | bytes[little ? at + width - 1 - i : at + i];
    return value;
  }
};

// Returns how the camera was held: 1 to 8, as in TIFF's tag 274, or 1 if the block does not say.
int orientation_of(ExifBlock tiff) {
  constexpr uint32_t kOrientation = 274;
  tiff.little = tiff.size > 0 && tiff.bytes[0] == 'I';
  const size_t directory = tiff.number(4, 4);
  const uint32_t entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i)
    if (const size_t at = directory + 2 + 12 * i; tiff.number(at, 2) == kOrientation) {
      const uint32_t value = tiff.number(at + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  return 1;
}

// Returns the picture upright, [C, H, W]. Orientations from 5 on exchange rows and columns; 2, 3
// and 4 mirror or turn it.
Tensor upright(const Tensor& image, int orientation) {
  if (orientation == 1) return image;
  const bool turned = orientation >= 5;
  const int64_t height = image.size(turned ? 2 : 1);
  const int64_t width = image.size(turned ? 1 : 2);
  const Tensor out = empty({image.size(0), height, width}, {.dtype = DType::UInt8});
  const bool from_right =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool from_below =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  uint8_t* to = out.data<uint8_t>();
  for (int64_t c = 0; c < image.size(0); ++c) {
    const uint8_t* plane = image.data<uint8_t>() + c * height * width;
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x) {
        const int64_t row = from_below ? height - 1 - y : y;
        const int64_t column = from_right ? width - 1 - x : x;
        *to++ = turned ? plane[column * height + row] : plane[row * width + column];
      }
  }
  return out;
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
      size.orientation = orientation_of({m->data + 6, m->data_length - 6});
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

Tensor read_jpeg(std::istream& in, const std::string& path) {
  in.seekg(0, std::ios::end);
  std::vector<uint8_t> bytes(in.tellg());
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  JpegErrors errors;
  JpegSize size;
  CHECK_AS(DataError, in.good() && decode_jpeg(bytes, size, nullptr, errors), "image: ", path, ": ",
           errors.text);
  errors.most_scans = most_scans(path, size.width, size.height, std::ssize(bytes));
  std::vector<uint8_t> pixels(size.height * size.width * size.channels);
  CHECK_AS(DataError, decode_jpeg(bytes, size, pixels.data(), errors), "image: ", path, ": ",
           errors.text);
  return upright(planes(pixels, std::min<int64_t>(3, size.channels), size.height, size.width),
                 size.orientation);
}
#endif

// Returns the name of a picture format that is common but not supported, recognised by its first
// bytes, or "".
std::string unread_format(const std::string& start) {
  struct Format {
    const char* name;
    size_t at;
    std::string_view bytes;
  };
  constexpr Format kFormats[] = {{"HEIC", 4, "ftyphei"},    {"HEIC", 4, "ftypmif1"},
                                 {"AVIF", 4, "ftypavif"},   {"WebP", 8, "WEBP"},
                                 {"GIF", 0, "GIF8"},        {"BMP", 0, "BM"},
                                 {"TIFF", 0, {"II*\0", 4}}, {"TIFF", 0, {"MM\0*", 4}},
                                 {"JPEG XL", 4, "JXL "},    {"SVG", 0, "<svg"}};
  for (const auto& [name, at, bytes] : kFormats)
    if (std::string_view(start).substr(std::min(at, start.size())).starts_with(bytes)) return name;
  return "";
}

// The weights of the source pixels, from `first` on, for one destination pixel along one side: a
// triangle around its centre.
struct Taps {
  int64_t first;
  std::vector<double> weights;
};

std::vector<Taps> triangles(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double radius = std::max(1.0, scale);
  std::vector<Taps> all;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    Taps& taps = all.emplace_back(Taps{static_cast<int64_t>(std::max(0.0, centre - radius)), {}});
    double sum = 0;
    for (int64_t p = taps.first; p < from && static_cast<double>(p) < centre + radius; ++p)
      sum += taps.weights.emplace_back(
          std::max(0.0, radius - std::abs(static_cast<double>(p) + 0.5 - centre)));
    for (double& weight : taps.weights) weight /= sum;
  }
  return all;
}

// Returns one channel of the image after conversion to `channels` channels, as [height · width].
std::vector<float> plane_of(const Tensor& image, int64_t channels, int64_t c) {
  const int64_t from = image.size(0);
  const int64_t pixels = image.size(1) * image.size(2);
  const uint8_t* in = image.data<uint8_t>();
  std::vector<float> plane(pixels);
  for (int64_t i = 0; i < pixels; ++i)
    if (from == channels || from == 1)
      plane[i] = in[(from == 1 ? 0 : c) * pixels + i];
    else  // luma, ITU-R BT.601
      plane[i] =
          static_cast<float>(0.299 * in[i] + 0.587 * in[pixels + i] + 0.114 * in[2 * pixels + i]);
  return plane;
}

Tensor decoded(const std::string& path) {
  std::error_code none;
  CHECK_AS(DataError,
           !std::filesystem::exists(path, none) || std::filesystem::is_regular_file(path, none),
           "image: ", path, " is not a regular file");
  Classic<std::ifstream> in(path, std::ios::binary);
  CHECK_AS(DataError, in.good(), "image: cannot open ", path, ": ", std::strerror(errno));
  char magic[16] = {};
  in.read(magic, sizeof magic);
  in.clear();
  [[maybe_unused]] const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, none));
  const std::string start(magic, sizeof magic);
  if (start.starts_with("P5") || start.starts_with("P6"))
    return read_pnm(in, path, magic[1] == '6');
#ifdef RINGGRAD_PNG
  if (start.starts_with("\x89PNG\r\n\x1a\n")) return read_png(path, bytes);
#endif
#ifdef RINGGRAD_JPEG
  if (start.starts_with("\xff\xd8\xff")) return read_jpeg(in, path);
#endif
  if (const std::string format = unread_format(start); !format.empty())
    throw DataError(fmt::format(
        "image: {} is a {} picture, which is not read; convert it to PNG or JPEG", path, format));
  throw DataError(
      fmt::format("image: {} is neither binary PGM or PPM nor PNG{} nor JPEG{}", path,
                  reads_png() ? "" : " (which this build does not read: libpng-dev)",
                  reads_jpeg() ? "" : " (which this build does not read: libjpeg-dev)"));
}

// Returns make(picture). If memory is short, the error names the file.
Tensor made_of(const std::string& path, const auto& make) {
  const auto too_large = [&] {
    return OutOfMemoryError(
        str("image: ", path, " is too large for the memory that is left; make it smaller"));
  };
  try {
    return make();
  } catch (const std::bad_alloc&) {
    throw too_large();
  } catch (const OutOfMemoryError&) {
    throw too_large();
  }
}

}  // namespace

Tensor read_image(const std::string& path) {
  return made_of(path, [&] { return decoded(path); });
}
Tensor read_fitted_image(const std::string& path, int64_t channels, int64_t size) {
  return made_of(path, [&] { return fit_image(decoded(path), channels, size); });
}

bool reads_png() {
#ifdef RINGGRAD_PNG
  return true;
#else
  return false;
#endif
}
bool reads_jpeg() {
#ifdef RINGGRAD_JPEG
  return true;
#else
  return false;
#endif
}

// The two-dimensional triangle is the product of one along the rows and one along the columns.
Tensor fit_image(const Tensor& image, int64_t channels, int64_t size) {
  const int64_t height = image.size(1);
  const int64_t width = image.size(2);
  const Tensor fitted = empty({1, channels, size, size});
  const std::vector<Taps> down = triangles(height, size);
  const std::vector<Taps> across = triangles(width, size);
  std::vector<double> narrow(height * size);
  std::vector<double> row(size);
  float* out = fitted.data<float>();
  for (int64_t c = 0; c < channels; ++c) {
    const std::vector<float> plane = plane_of(image, channels, c);
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < size; ++x) {
        const float* in = plane.data() + y * width + across[x].first;
        double sum = 0;
        for (const double weight : across[x].weights) sum += weight * *in++;
        narrow[y * size + x] = sum;
      }
    for (const Taps& taps : down) {
      std::fill(row.begin(), row.end(), 0.0);
      const double* in = narrow.data() + taps.first * size;
      for (const double weight : taps.weights)
        for (int64_t x = 0; x < size; ++x) row[x] += weight * *in++;
      for (const double value : row) *out++ = static_cast<float>(value);
    }
  }
  return fitted;
}

}  // namespace ringgrad
