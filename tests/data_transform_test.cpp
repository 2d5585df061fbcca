// The one-pass transform against its definition, one pixel at a time in double precision.
#include <array>
#include <cmath>
#include <map>

#include "core/error.h"
#include "data/transform.h"
#include "tests/catch.h"

using namespace ringgrad;

namespace {

constexpr int kChannels = 3, kHeight = 9, kWidth = 13, kPixels = kChannels * kHeight * kWidth;

std::vector<uint8_t> some_image() {
  std::vector<uint8_t> image(kPixels);
  for (int i = 0; i < kPixels; ++i) image[i] = static_cast<uint8_t>(i * 37 + i / 11);
  return image;
}

// Normalised pixel (c, y, x) of the output: where it comes from, read off the definition in transform.h.
double expected(const ImageTransform& t, const Augmentation& a, const std::vector<uint8_t>& image, int c, int y,
                int x) {
  if (y >= a.cut_top && y < a.cut_bottom && x >= a.cut_left && x < a.cut_right) return 0;
  const int from_y = y + a.dy, from_x = (a.flip ? kWidth - 1 - x : x) + a.dx;
  const bool inside = from_y >= 0 && from_y < kHeight && from_x >= 0 && from_x < kWidth;
  const double pixel = inside ? image[(c * kHeight + from_y) * kWidth + from_x] : 0;
  const double mean = t.mean.empty() ? 0 : t.mean[t.mean.size() == 1 ? 0 : c];
  const double std = t.std.empty() ? 1 : t.std[t.std.size() == 1 ? 0 : c];
  return (pixel / 255 - mean) / std;
}

void require_as_defined(const ImageTransform& t, const Augmentation& a) {
  const std::vector<uint8_t> image = some_image();
  std::vector<float> out(kPixels + 1, -77);
  apply_transform(t, a, image.data(), kChannels, kHeight, kWidth, out.data());
  int i = 0;
  for (int c = 0; c < kChannels; ++c)
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x, ++i) {
        const double wanted = expected(t, a, image, c, y, x);
        // Two roundings of numbers up to (1 + |mean|) / std.
        if (!(std::abs(out[i] - wanted) <= 4e-7 * (1 + std::abs(wanted)) * 4))
          FAIL("channel " << c << ", row " << y << ", column " << x << ": " << out[i] << ", expected " << wanted);
      }
  REQUIRE(out[kPixels] == -77);  // nothing is written past the end
}

}  // namespace

TEST_CASE("transform: every crop, flip and cut is as defined", "[quick]") {
  const ImageTransform plain, normalised{.mean = {0.1f, 0.5f, 0.9f}, .std = {0.2f, 0.3f, 1.5f}};
  const ImageTransform common{.mean = {0.25f}, .std = {0.5f}};
  for (const ImageTransform& t : {plain, normalised, common})
    for (bool flip : {false, true})
      for (int dy : {-kHeight - 1, -kHeight, -3, 0, 1, kHeight - 1, kHeight})
        for (int dx : {-kWidth - 1, -kWidth, -2, 0, 4, kWidth - 1, kWidth + 3}) {
          require_as_defined(t, {.dy = dy, .dx = dx, .flip = flip});
          require_as_defined(t, {dy, dx, flip, 2, 5, 0, 4});
        }
}

TEST_CASE("transform: what is drawn is as defined, too", "[quick]") {
  const ImageTransform t{.crop_padding = 4, .flip = true, .cutout = 5, .mean = {0.4f}, .std = {0.2f}, .seed = 12};
  for (int64_t index = 0; index < 200; ++index) require_as_defined(t, draw_augmentation(t, kHeight, kWidth, 3, index));
}

TEST_CASE("transform: a draw is a pure function of seed, epoch and index", "[quick]") {
  ImageTransform t{.crop_padding = 4, .flip = true, .cutout = 8};
  auto key = [](const Augmentation& a) {
    return std::array{a.dy, a.dx, int{a.flip}, a.cut_top, a.cut_bottom, a.cut_left, a.cut_right};
  };
  std::map<std::array<int, 7>, int> seen;
  for (uint64_t seed = 0; seed < 4; ++seed)
    for (int64_t epoch = 0; epoch < 4; ++epoch)
      for (int64_t index = 0; index < 50; ++index) {
        t.seed = seed;
        const Augmentation first = draw_augmentation(t, 32, 32, epoch, index);
        REQUIRE(key(first) == key(draw_augmentation(t, 32, 32, epoch, index)));
        ++seen[key(first)];
      }
  REQUIRE(seen.size() > 790);  // of 800, out of 165,888 possibilities

  // Switching one augmentation off leaves the others as they were.
  const Augmentation all = draw_augmentation(t, 32, 32, 1, 2);
  ImageTransform without_flip = t;
  without_flip.flip = false;
  const Augmentation fewer = draw_augmentation(without_flip, 32, 32, 1, 2);
  REQUIRE((fewer.dy == all.dy && fewer.dx == all.dx && fewer.cut_top == all.cut_top && !fewer.flip));
}

TEST_CASE("transform: draws are uniform", "[quick]") {
  const ImageTransform t{.crop_padding = 4, .flip = true, .cutout = 8};
  constexpr int kDraws = 9000;
  std::array<int, 9> dy{}, dx{};
  int flips = 0, area = 0;
  for (int64_t index = 0; index < kDraws; ++index) {
    const Augmentation a = draw_augmentation(t, 32, 32, 0, index);
    ++dy[a.dy + 4];
    ++dx[a.dx + 4];
    flips += a.flip;
    REQUIRE((a.cut_bottom > a.cut_top && a.cut_right > a.cut_left && a.cut_bottom <= 32 && a.cut_right <= 32));
    area = std::max(area, (a.cut_bottom - a.cut_top) * (a.cut_right - a.cut_left));
  }
  // 1000 each, standard deviation sqrt(9000 * 1/9 * 8/9) = 30; flips 4500, standard deviation 47.
  for (int count : dy) REQUIRE(std::abs(count - 1000) < 150);
  for (int count : dx) REQUIRE(std::abs(count - 1000) < 150);
  REQUIRE(std::abs(flips - 4500) < 235);
  REQUIRE(area == 64);
}

TEST_CASE("transform: what cannot be applied is an error", "[quick]") {
  REQUIRE_NOTHROW(check_transform({}, 3));
  REQUIRE_NOTHROW(check_transform({.mean = {0.5f}, .std = {1, 2, 3}}, 3));
  REQUIRE_THROWS_AS(check_transform({.mean = {0.5f, 0.5f}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.std = {1, 0, 1}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.std = {NAN}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.mean = {INFINITY}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.crop_padding = -1}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.cutout = -1}, 3), Error);
}
