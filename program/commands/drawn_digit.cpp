#include "ringgrad/program/commands/drawn_digit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/image_file.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kSize = 28;
constexpr int64_t kInkSize = 20;
constexpr float kLeastContrast = 32;  // the least difference between ink and paper, of 255
constexpr float kGrain = 0.25f;       // as a part of the strongest ink; fainter pixels are paper

struct Picture {
  std::vector<float> pixels;  // [height, width], 0 to 255
  int64_t height;
  int64_t width;
};

Picture gray(const Tensor& image) {
  Picture p{{}, image.size(1), image.size(2)};
  p.pixels.assign(p.height * p.width, 0);
  const uint8_t* in = image.data<uint8_t>();
  for (int64_t i = 0; i < image.numel(); ++i)
    p.pixels[i % (p.height * p.width)] +=
        static_cast<float>(in[i]) / static_cast<float>(image.size(0));
  return p;
}

// The median along the four edges.
float background(const Picture& p) {
  std::vector<float> edge;
  for (int64_t y = 0; y < p.height; ++y)
    for (int64_t x = 0; x < p.width; ++x)
      if (y == 0 || x == 0 || y == p.height - 1 || x == p.width - 1)
        edge.push_back(p.pixels[y * p.width + x]);
  std::nth_element(edge.begin(), edge.begin() + static_cast<ptrdiff_t>(edge.size() / 2),
                   edge.end());
  return edge[edge.size() / 2];
}

// The ink alone, on a square of its own: its larger side is 20/28 of the square's, its centre of
// mass the centre.
Tensor cut_out(const Picture& ink) {
  double mass = 0;
  double sum_y = 0;
  double sum_x = 0;
  int64_t top = ink.height;
  int64_t bottom = -1;
  int64_t left = ink.width;
  int64_t right = -1;
  for (int64_t y = 0; y < ink.height; ++y)
    for (int64_t x = 0; x < ink.width; ++x) {
      const float value = ink.pixels[y * ink.width + x];
      if (value == 0) continue;
      mass += value, sum_y += value * static_cast<double>(y),
          sum_x += value * static_cast<double>(x);
      top = std::min(top, y), bottom = std::max(bottom, y), left = std::min(left, x),
      right = std::max(right, x);
    }
  const auto centre_y = std::lround(sum_y / mass);
  const auto centre_x = std::lround(sum_x / mass);
  const int64_t larger = std::max(bottom - top, right - left) + 1;
  const int64_t reach =
      std::max({centre_y - top, bottom - centre_y, centre_x - left, right - centre_x}) + 1;
  const int64_t side = std::max((larger * kSize + kInkSize - 1) / kInkSize, 2 * reach);
  Tensor square = zeros({1, side, side}, {.dtype = DType::UInt8});
  for (int64_t y = top; y <= bottom; ++y)
    for (int64_t x = left; x <= right; ++x)
      square.data<uint8_t>()[(y - centre_y + side / 2) * side + x - centre_x + side / 2] =
          static_cast<uint8_t>(ink.pixels[y * ink.width + x]);
  return square;
}

// A thin stroke grows faint when it is made small: the strongest pixel becomes white again.
Tensor stretched(const Tensor& fitted) {
  const std::span<const float> in(fitted.data<float>(), fitted.numel());
  const float strongest = *std::max_element(in.begin(), in.end());
  Tensor image = empty({1, kSize, kSize}, {.dtype = DType::UInt8});
  std::transform(in.begin(), in.end(), image.data<uint8_t>(),
                 [&](float value) { return static_cast<uint8_t>(value / strongest * 255); });
  return image;
}

}  // namespace

Tensor like_mnist(const Tensor& image, std::string* done) {
  *done = "";
  Picture picture = gray(image);
  const float paper = background(picture);
  const bool light = paper >= 128;
  if (!light && picture.height == kSize && picture.width == kSize) return image;
  float strongest = 0;
  for (float& value : picture.pixels)
    strongest = std::max(strongest, value = light ? paper - value : value - paper);
  if (strongest < kLeastContrast) return image;
  for (float& value : picture.pixels)
    value = value < kGrain * strongest ? 0 : value / strongest * 255;
  *done =
      light ? "dark ink on a light background: inverted, cut out and centred, as MNIST's digits are"
            : "cut out and centred, as MNIST's digits are";
  return stretched(fit_image(cut_out(picture), 1, kSize));
}

}  // namespace ringgrad::program
