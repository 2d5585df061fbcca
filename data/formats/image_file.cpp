#include "ringgrad/data/formats/image_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <vector>

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/picture_format.h"

namespace ringgrad {
namespace {

// The readers that need a library, or nullptr where this build lacks it.
using Read = Tensor (*)(const PictureFile&);
#ifdef RINGGRAD_PNG
constexpr Read kPng = read_png;
#else
constexpr Read kPng = nullptr;
#endif
#ifdef RINGGRAD_JPEG
constexpr Read kJpeg = read_jpeg;
#else
constexpr Read kJpeg = nullptr;
#endif
#ifdef RINGGRAD_WEBP
constexpr Read kWebp = read_webp;
#else
constexpr Read kWebp = nullptr;
#endif
#ifdef RINGGRAD_GIF
constexpr Read kGif = read_gif;
#else
constexpr Read kGif = nullptr;
#endif
#ifdef RINGGRAD_TIFF
constexpr Read kTiff = read_tiff;
#else
constexpr Read kTiff = nullptr;
#endif

struct Format {
  const char* name;
  const char* package;
  Read read;
};
constexpr Format kFormats[] = {{"PNG", "libpng-dev", kPng},    {"JPEG", "libjpeg-dev", kJpeg},
                               {"WebP", "libwebp-dev", kWebp}, {"GIF", "libgif-dev", kGif},
                               {"TIFF", "libtiff-dev", kTiff}, {"BMP", "", read_bmp}};

// Returns the name of a file's format by its first bytes, or "". Not all are read.
std::string format_of(std::string_view start) {
  struct Beginning {
    const char* name;
    size_t at;
    std::string_view bytes;
  };
  constexpr Beginning kBeginnings[] = {{"PNG", 0, "\x89PNG\r\n\x1a\n"},
                                       {"JPEG", 0, "\xff\xd8\xff"},
                                       {"WebP", 8, "WEBP"},
                                       {"GIF", 0, "GIF8"},
                                       {"TIFF", 0, {"II*\0", 4}},
                                       {"TIFF", 0, {"MM\0*", 4}},
                                       {"BMP", 0, "BM"},
                                       {"HEIC", 4, "ftyphei"},
                                       {"HEIC", 4, "ftypmif1"},
                                       {"AVIF", 4, "ftypavif"},
                                       {"JPEG XL", 4, "JXL "},
                                       {"SVG", 0, "<svg"}};
  for (const auto& [name, at, bytes] : kBeginnings)
    if (start.substr(std::min(at, start.size())).starts_with(bytes)) return name;
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
  const PictureFile file{path, static_cast<int64_t>(std::filesystem::file_size(path, none))};
  const std::string start(magic, sizeof magic);
  if (start.starts_with("P5") || start.starts_with("P6")) return read_pnm(file);
  const std::string name = format_of(start);
  for (const Format& format : kFormats)
    if (name == format.name) {
      if (format.read) return format.read(file);
      throw DataError(fmt::format(
          "image: {} is a {} picture, which this build does not read: install {} and build again, "
          "or convert it to PPM",
          path, name, format.package));
    }
  CHECK_AS(DataError, name.empty(), "image: ", path, " is a ", name,
           " picture, which is not read; convert it to PNG or JPEG");
  throw DataError(fmt::format("image: {} is no picture of a format that is read: {}", path,
                              names_of_read_formats()));
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

std::vector<PictureSupport> picture_support() {
  std::vector<PictureSupport> all;
  for (const Format& format : kFormats)
    all.push_back({format.name, format.package, format.read != nullptr});
  return all;
}

bool reads_pictures(std::string_view format) {
  return std::ranges::any_of(kFormats, [&](const Format& f) { return f.name == format && f.read; });
}

std::string names_of_read_formats() {
  std::string names;
  for (const Format& format : kFormats)
    if (format.read) names += std::string(format.name) + ", ";
  return names + "PGM and PPM";
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
