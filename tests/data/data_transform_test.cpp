// Tests the random choices for an image, and its normalisation. tests/kernels/op_specs_images.cpp
// tests the work on pixels.
#include <array>
#include <cmath>
#include <map>

#include "ringgrad/core/error.h"
#include "ringgrad/core/kernels/augmentation.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::data_transform_test {

TEST_CASE("transform: a draw is a pure function of seed, epoch and index", "[quick]") {
  AugmentOptions t{.crop_padding = 4, .flip = true, .cutout = 8};
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
  REQUIRE(seen.size() > 790);  // of 800 images, with 165,888 possibilities each

  // Switching one augmentation off leaves the others as they were.
  const Augmentation all = draw_augmentation(t, 32, 32, 1, 2);
  AugmentOptions without_flip = t;
  without_flip.flip = false;
  const Augmentation fewer = draw_augmentation(without_flip, 32, 32, 1, 2);
  REQUIRE(
      (fewer.dy == all.dy && fewer.dx == all.dx && fewer.cut_top == all.cut_top && !fewer.flip));
}

TEST_CASE("transform: draws are uniform", "[quick]") {
  const AugmentOptions t{.crop_padding = 4, .flip = true, .cutout = 8};
  constexpr int kDraws = 9000;
  std::array<int, 9> dy{};
  std::array<int, 9> dx{};
  int flips = 0;
  int area = 0;
  for (int64_t index = 0; index < kDraws; ++index) {
    const Augmentation a = draw_augmentation(t, 32, 32, 0, index);
    ++dy[a.dy + 4];
    ++dx[a.dx + 4];
    flips += a.flip;
    REQUIRE((a.cut_bottom > a.cut_top && a.cut_right > a.cut_left && a.cut_bottom <= 32 &&
             a.cut_right <= 32));
    area = std::max(area, (a.cut_bottom - a.cut_top) * (a.cut_right - a.cut_left));
  }
  // 1000 each, standard deviation sqrt(9000 * 1/9 * 8/9) = 30; flips 4500, standard deviation 47.
  for (int count : dy) REQUIRE(std::abs(count - 1000) < 150);
  for (int count : dx) REQUIRE(std::abs(count - 1000) < 150);
  REQUIRE(std::abs(flips - 4500) < 235);
  REQUIRE(area == 64);
}

TEST_CASE("transform: flips in turn begin by chance, and then follow each other", "[quick]") {
  const AugmentOptions t{.crop_padding = 1, .flip = true, .alternate = true, .seed = 7};
  int first = 0;
  for (int64_t index = 0; index < 1000; ++index) {
    const bool flip = draw_augmentation(t, 8, 8, 0, index).flip;
    first += flip;
    for (int64_t epoch = 1; epoch < 5; ++epoch)
      REQUIRE(draw_augmentation(t, 8, 8, epoch, index).flip == (epoch % 2 == 1 ? !flip : flip));
  }
  REQUIRE(std::abs(first - 500) < 80);  // standard deviation 16
  AugmentOptions by_chance = t;
  by_chance.alternate = false;
  REQUIRE(draw_augmentation(t, 8, 8, 3, 4).dx == draw_augmentation(by_chance, 8, 8, 3, 4).dx);
}

TEST_CASE("transform: what cannot be applied is an error", "[quick]") {
  REQUIRE_NOTHROW(check_transform({}, 3));
  REQUIRE_NOTHROW(check_transform({.mean = {0.5f}, .std = {1, 2, 3}}, 3));
  REQUIRE_THROWS_AS(check_transform({.mean = {0.5f, 0.5f}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.std = {1, 0, 1}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.std = {NAN}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.mean = {INFINITY}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.augment = {.crop_padding = -1}}, 3), Error);
  REQUIRE_THROWS_AS(check_transform({.augment = {.cutout = -1}}, 3), Error);
}

TEST_CASE("transform: the normalisation of each channel", "[quick]") {
  const auto check = [](const ImageTransform& t, const std::vector<double>& mean,
                        const std::vector<double>& std) {
    const auto [scale, shift] = normalization(t, 3);
    for (size_t c = 0; c < 3; ++c)
      for (const double pixel : {0.0, 100.0, 255.0}) {
        const double want = (pixel / 255 - mean[c]) / std[c];
        const double got = pixel * scale.data<float>()[c] + shift.data<float>()[c];
        REQUIRE(std::abs(got - want) <= 3e-7 * (1 + std::abs(want)));
      }
  };
  check({}, {0, 0, 0}, {1, 1, 1});
  check({.mean = {0.25f}, .std = {0.5f}}, {0.25, 0.25, 0.25}, {0.5, 0.5, 0.5});
  check({.mean = {0.125f, 0.5f, 0.75f}, .std = {0.25f, 0.375f, 1.5f}}, {0.125, 0.5, 0.75},
        {0.25, 0.375, 1.5});
}

}  // namespace ringgrad::test::data_transform_test
