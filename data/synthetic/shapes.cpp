#include "ringgrad/data/synthetic/shapes.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "ringgrad/core/random.h"
#include "ringgrad/data/sampler.h"
#include "ringgrad/data/synthetic/fixed_point.h"

namespace ringgrad {
namespace {

constexpr int kSide = 32;

enum Shape10 { Circle, Square, Triangle, Star, Ring, Cross, Crescent, Stripes, Checkers, Dots };

// Figures have their own coordinates, in which they just fit a circle of radius 256 around (0, 0).
constexpr int64_t squared(int64_t x) { return x * x; }
constexpr int64_t norm2(Point p) { return squared(p.x) + squared(p.y); }

// A point is inside a pentagram if it lies beyond at most one of the five lines, at distance R cos
// 72 degrees from the centre.
bool in_star(Point p) {
  int crossed = 0;
  for (int k = 0; k < 5; ++k) {
    const int32_t angle = kTurn / 4 + k * kTurn / 5;
    crossed +=
        int64_t{fixed_cos(angle)} * p.x + int64_t{fixed_sin(angle)} * p.y > int64_t{79} * kOne;
  }
  return crossed <= 1;
}

// A texture fills a separate figure, chosen by `outline`, and repeats every `period`.
bool in_shape(int shape, Point p, int outline, int32_t period) {
  const int32_t u = std::abs(p.x);
  const int32_t v = std::abs(p.y);
  auto cell = [&](int32_t x) { return (x + 64 * period) / period; };  // positive within the picture
  auto within = [&](int32_t x) { return (x + 64 * period) % period - period / 2; };
  switch (shape) {
    case Circle: return norm2(p) < squared(225);
    case Square: return u < 190 && v < 190;
    case Triangle:
      return p.y < 128 && 443 * u < 256 * (p.y + 256);  // equilateral: 443 / 256 = sqrt(3)
    case Star: return in_star(p);
    case Ring: return norm2(p) < squared(240) && norm2(p) > squared(145);
    case Cross: return std::min(u, v) < 75 && std::max(u, v) < 235;
    case Crescent: return norm2(p) < squared(240) && norm2({p.x - 110, p.y}) > squared(200);
    default: break;
  }
  if (!in_shape(outline, p, 0, 0)) return false;
  if (shape == Stripes) return cell(p.x) % 2 == 0;
  if (shape == Checkers) return (cell(p.x) + cell(p.y)) % 2 == 0;
  return norm2({within(p.x), within(p.y)}) < squared(period) / 9;
}

struct Colour {
  std::array<int32_t, 3> rgb;

  explicit Colour(RandomSequence& random) {
    for (int32_t& c : rgb) c = random.between(20, 235);
  }
  int32_t distance(const Colour& other) const {
    int32_t sum = 0;
    for (int i = 0; i < 3; ++i) sum += std::abs(rgb[i] - other.rgb[i]);
    return sum;
  }
};

// Returns a colour that differs visibly from `ground`. The loop ends, because some colour is always
// far enough away.
Colour contrasting(RandomSequence& random, const Colour& ground, int32_t distance) {
  Colour colour(random);
  while (colour.distance(ground) < distance) colour = Colour(random);
  return colour;
}

using Canvas = std::array<std::array<int32_t, kSide * kSide>, 3>;

// Paints a plane of colour that becomes lighter in one direction.
void paint_background(Canvas& canvas, const Colour& ground, RandomSequence& random) {
  const int32_t slope_x = random.between(-32, 32);
  const int32_t slope_y = random.between(-32, 32);
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x)
        canvas[c][y * kSide + x] = ground.rgb[c] + (slope_x * (x - 16) + slope_y * (y - 16)) / 16;
}

// The placement of a figure: the picture's coordinates minus `centre`, times `to_figure`, are the
// figure's.
struct Placement {
  Point centre;
  int32_t radius;
  Matrix2 to_figure;

  // The inverse of three steps: scale by radius / 256, squeeze one axis, rotate.
  Placement(RandomSequence& random, Point centre, int32_t radius)
      : centre(centre), radius(radius), to_figure{} {
    const int32_t scale = kOne * kPixel / radius;
    const int32_t squeeze = random.between(kOne, kOne * 5 / 4);
    const Matrix2 unscale{scale, 0, 0, static_cast<int32_t>(int64_t{scale} * squeeze >> 14)};
    to_figure = unscale * Matrix2::rotation(random.between(-kTurn / 10, kTurn / 10));
  }
};

// Paints the points inside in_shape, averaged over 2 x 2 points per pixel.
void paint(Canvas& canvas, int shape, const Placement& place, const Colour& colour, int outline,
           int32_t period) {
  const int32_t reach = place.radius * 9 / 8;  // a square's corners lie 1.05 radii from its centre
  auto first = [&](int32_t centre) { return std::max(0, (centre - reach) / kPixel); };
  auto last = [&](int32_t centre) { return std::min(kSide - 1, (centre + reach) / kPixel); };
  for (int y = first(place.centre.y); y <= last(place.centre.y); ++y) {
    for (int x = first(place.centre.x); x <= last(place.centre.x); ++x) {
      int32_t covered = 0;
      for (int sample = 0; sample < 4; ++sample) {
        const Point p{x * kPixel + (sample & 1) * kPixel / 2 - place.centre.x,
                      y * kPixel + (sample >> 1) * kPixel / 2 - place.centre.y};
        covered += in_shape(shape, place.to_figure * p, outline, period);
      }
      for (int c = 0; covered && c < 3; ++c) {
        int32_t& value = canvas[c][y * kSide + x];
        value += (colour.rgb[c] - value) * covered / 4;
      }
    }
  }
}

}  // namespace

const std::vector<std::string>& shape_classes() {
  static const std::vector<std::string> names{"circle", "square",   "triangle", "star",     "ring",
                                              "cross",  "crescent", "stripes",  "checkers", "dots"};
  return names;
}

void draw_shape(int shape, uint64_t number, std::span<uint8_t, kCifarPixels> pixels) {
  RandomSequence random(0, Purpose::Shapes, number);
  Canvas canvas;
  const Colour ground(random);
  paint_background(canvas, ground, random);

  for (int spots = random.between(0, 3); spots > 0; --spots) {
    const int32_t x = random.between(0, 31 * kPixel);
    const int32_t y = random.between(0, 31 * kPixel);
    const Placement place(random, {x, y}, random.between(kPixel * 3 / 2, kPixel * 3));
    const int outline = random.between(0, 1) ? Circle : Square;
    paint(canvas, outline, place, Colour(random), 0, 0);
  }

  const bool texture = shape >= Stripes;
  const int32_t radius =
      texture ? random.between(12 * kPixel, 16 * kPixel) : random.between(9 * kPixel, 14 * kPixel);
  const int32_t freedom = 15 * kPixel - radius * 3 / 4;
  const int32_t x = 31 * kPixel / 2 + random.between(-freedom, freedom) / 2;
  const int32_t y = 31 * kPixel / 2 + random.between(-freedom, freedom) / 2;
  const Placement place(random, {x, y}, radius);
  const int outline = random.between(0, 1) ? Circle : Square;
  const int32_t pixels_per_period = random.between(5 * kPixel / 2, 4 * kPixel);
  const int32_t period = (shape == Dots ? 2 : 1) * pixels_per_period * 256 / radius;
  paint(canvas, shape, place, contrasting(random, ground, 200), outline, period);

  const int32_t noise = random.between(4, 36);
  uint64_t bits = 0;
  for (int i = 0; i < kCifarPixels; ++i) {
    if (i % 8 == 0) bits = random.next();
    const int32_t grain = static_cast<int32_t>(bits & 255) - 128;
    bits >>= 8;
    pixels[i] = static_cast<uint8_t>(
        clamp_byte(canvas[i / (kSide * kSide)][i % (kSide * kSide)] + (grain * noise >> 7)));
  }
}

void make_shapes(const std::filesystem::path& folder) {
  constexpr int64_t kPerFile = 2000;
  std::vector<std::string> files = kCifar10.train_files;
  files.insert(files.end(), kCifar10.test_files.begin(), kCifar10.test_files.end());
  uint64_t number = 0;  // every picture of all files has its own number
  for (size_t file = 0; file < files.size(); ++file) {
    std::vector<uint8_t> labels;
    std::vector<uint8_t> pixels(kPerFile * kCifarPixels);
    // Each class occurs equally often, in an order that no stride of a sampler matches.
    for (int64_t place : epoch_order(kPerFile, true, 0, static_cast<int64_t>(file)))
      labels.push_back(static_cast<uint8_t>(place % 10));
    uint8_t* next = pixels.data();
    for (uint8_t label : labels) {
      draw_shape(label, number++, std::span<uint8_t, kCifarPixels>(next, kCifarPixels));
      next += kCifarPixels;
    }
    write_cifar(kCifar10, folder / files[file], labels, pixels);
  }
}

}  // namespace ringgrad
