#include "ringgrad/data/synthetic/digits.h"

#include <algorithm>
#include <utility>

#include "ringgrad/core/base/text.h"
#include "ringgrad/core/random.h"
#include "ringgrad/data/formats/idx.h"
#include "ringgrad/data/sampler.h"

namespace ringgrad {

namespace {

using Stroke = std::vector<Point>;
using Skeleton = std::vector<Stroke>;

// Returns the strokes of "x y  x y; x y …".
Skeleton skeleton_of(const char* text) {
  Skeleton strokes;
  TextInput all(text);
  for (std::string points; std::getline(all, points, ';');) {
    TextInput in(points);
    strokes.emplace_back();
    for (Point p; in >> p.x >> p.y;) strokes.back().push_back(p);
  }
  return strokes;
}

// Several ways of writing each digit, in a box 100 wide and 140 high. A sharp corner ends a stroke.
const std::vector<const char*>& ways_of_writing(int digit) {
  static const std::vector<const char*> all[10] = {
      {"50 0  84 18  95 70  84 122  50 140  16 122  5 70  16 18  50 0",
       "62 4  26 10  6 66  20 126  54 140  88 112  94 50  74 8  44 12"},
      {"52 0  50 70  48 140", "22 34  54 0; 54 0  53 70  52 140",
       "26 30  52 0; 52 0  52 138; 22 139  82 139"},
      {"12 34  26 8  54 0  84 16  86 46  62 84  10 138; 10 138  52 138  94 136",
       "14 26  48 0  82 24  74 66  42 108  16 134  12 120  32 114  62 132  94 130"},
      {"12 18  46 0  82 16  80 46  42 64; 42 64  84 78  92 112  56 140  8 124",
       "14 2  84 2; 84 2  44 56; 44 56  86 74  90 112  54 140  8 126"},
      {"64 0  34 48  6 94; 6 94  50 94  96 92; 66 50  66 96  64 140",
       "18 4  12 40  12 76; 12 76  50 76  92 72; 82 8  78 74  72 140",
       "72 0  38 46  4 92; 4 92  50 92  96 92; 72 0  72 70  72 140"},
      {"86 2  24 2; 24 2  18 60; 18 60  52 50  86 70  90 108  58 138  8 128",
       "20 8  16 62; 16 62  56 52  88 78  84 118  50 140  8 126; 20 6  88 0"},
      {"78 4  42 24  14 72  14 116  46 140  82 124  84 92  54 74  20 94",
       "60 0  26 48  10 100  32 138  74 132  84 98  52 82  14 112"},
      {"8 4  92 2; 92 2  62 66  40 140", "8 6  92 4; 92 4  60 70  44 140; 30 72  82 68",
       "10 30  12 4; 12 4  92 4; 92 4  58 60  48 140"},
      {"50 64  82 42  80 12  50 0  20 12  18 42  50 64  86 92  86 124  50 140  14 124  "
       "14 92  50 64",
       "82 14  46 0  18 26  46 62  82 98  72 132  36 138  14 110  48 64  82 30  84 12"},
      {"84 36  66 4  32 4  14 36  30 68  64 66  84 36; 85 24  80 84  62 140",
       "82 24  50 0  16 22  20 60  54 70  82 40; 83 18  84 82  80 140",
       "84 34  64 2  30 6  14 40  34 68  66 62  84 34; 85 30  86 90  68 132  24 134"},
  };
  return all[digit];
}

// The smooth deformation of one picture: one wave displaces x along y, and another displaces y
// along x.
struct Warp {
  int32_t amplitude_x;
  int32_t amplitude_y;
  int32_t phase_x;
  int32_t phase_y;
  int32_t frequency_x;
  int32_t frequency_y;

  explicit Warp(RandomSequence& random)
      : amplitude_x(random.between(-11, 11)),
        amplitude_y(random.between(-11, 11)),
        phase_x(random.between(0, kTurn - 1)),
        phase_y(random.between(0, kTurn - 1)),
        frequency_x(random.between(200, 620)),
        frequency_y(random.between(200, 620)) {}

  // In box units times 16, relative to the box's centre.
  Point operator()(Point p) const {
    return {p.x + (amplitude_x * 16 * fixed_sin(phase_x + p.y * frequency_x / 16) >> 14),
            p.y + (amplitude_y * 16 * fixed_sin(phase_y + p.x * frequency_y / 16) >> 14)};
  }
};

Matrix2 random_affine(RandomSequence& random) {
  const int32_t width = random.between(21000, 37000);
  const int32_t height = random.between(27000, 37000);
  const int32_t shear = random.between(-5400, 5400);
  const Matrix2 scale{width, 0, 0, height};
  const Matrix2 slant{kOne, -shear, 0, kOne};
  return Matrix2::rotation(random.between(-3500, 3500)) * (slant * scale);
}

}  // namespace

void draw_digit(int digit, uint64_t number, std::span<uint8_t, kDigitPixels> pixels) {
  RandomSequence random(0, Purpose::Digits, number);
  const auto& ways = ways_of_writing(digit);
  const Skeleton skeleton = skeleton_of(ways[random.below(ways.size())]);

  const Warp warp(random);
  const Matrix2 affine = random_affine(random);
  const Point centre{27 * kPixel / 2 + random.between(-820, 820),
                     27 * kPixel / 2 + random.between(-660, 660)};
  const int32_t radius = random.between(120, 330);
  const int32_t edge = random.between(130, 190);

  StrokeCanvas canvas(kDigitSide, radius + edge);
  for (const Stroke& stroke : skeleton) {
    Stroke wobbly = stroke;
    for (Point& p : wobbly)
      p = {(p.x - 50) * 16 + random.between(-80, 80), (p.y - 70) * 16 + random.between(-80, 80)};
    std::vector<Point> curve = spline(wobbly, 5);
    for (Point& p : curve) {
      const Point turned = affine * warp(p);
      p = {turned.x + centre.x, turned.y + centre.y};
    }
    canvas.add(curve);
  }

  const int32_t contrast = random.between(150, 255);
  const int32_t noise = random.between(0, 48);
  uint64_t bits = 0;
  for (int i = 0; i < kDigitPixels; ++i) {
    if (i % 8 == 0) bits = random.next();
    const int32_t grain = static_cast<int32_t>(bits & 255) - 128;
    bits >>= 8;
    pixels[i] = static_cast<uint8_t>(
        clamp_byte((canvas.ink(i, radius, edge) * contrast >> 8) + (grain * noise >> 7)));
  }
}

void make_digits(const std::filesystem::path& folder) {
  uint64_t number = 0;  // every picture of both splits has its own number
  for (const auto& [prefix, count] : {std::pair{"train", 12000}, std::pair{"t10k", 2000}}) {
    std::vector<uint8_t> labels;
    std::vector<uint8_t> pixels(static_cast<size_t>(count) * kDigitPixels);
    // Each digit occurs equally often, in an order that no stride of a sampler matches.
    for (int64_t place : epoch_order(count, true, 0, count))
      labels.push_back(static_cast<uint8_t>(place % 10));
    uint8_t* next = pixels.data();
    for (uint8_t label : labels) {
      draw_digit(label, number++, std::span<uint8_t, kDigitPixels>(next, kDigitPixels));
      next += kDigitPixels;
    }
    write_idx(folder / (std::string(prefix) + "-images-idx3-ubyte"),
              {count, kDigitSide, kDigitSide}, pixels);
    write_idx(folder / (std::string(prefix) + "-labels-idx1-ubyte"), {count}, labels);
  }
}

std::vector<Point> spline(std::span<const Point> control, int pieces) {
  const int last = static_cast<int>(control.size()) - 1;
  const bool closed = control[0] == control[last];
  // A phantom point comes before the first and after the last: the curve's other end if it is
  // closed, else a mirror image.
  auto at = [&](int i) -> Point {
    if (i >= 0 && i <= last) return control[i];
    if (closed) return control[i < 0 ? last - 1 : 1];
    const Point end = control[i < 0 ? 0 : last];
    const Point inner = control[i < 0 ? 1 : last - 1];
    return {2 * end.x - inner.x, 2 * end.y - inner.y};
  };
  std::vector<Point> points{control[0]};
  points.reserve(last * pieces + 1);
  for (int i = 0; i < last; ++i) {
    const Point p0 = at(i - 1);
    const Point p1 = at(i);
    const Point p2 = at(i + 1);
    const Point p3 = at(i + 2);
    for (int piece = 1; piece <= pieces; ++piece) {
      const int64_t t = int64_t{piece} * 256 / pieces;
      const int64_t t2 = t * t >> 8;
      const int64_t t3 = t2 * t >> 8;
      auto blend = [&](int32_t a, int32_t b, int32_t c, int32_t d) {
        return static_cast<int32_t>((512 * b + t * (c - a) + t2 * (2 * a - 5 * b + 4 * c - d) +
                                     t3 * (3 * b - a - 3 * c + d)) >>
                                    9);
      };
      points.push_back({blend(p0.x, p1.x, p2.x, p3.x), blend(p0.y, p1.y, p2.y, p3.y)});
    }
  }
  return points;
}

StrokeCanvas::StrokeCanvas(int side, int32_t reach)
    : side_(side), reach_(reach), squared_distance_(side * side, reach * reach) {}

void StrokeCanvas::add(std::span<const Point> polyline) {
  for (size_t i = 1; i < polyline.size(); ++i) add(polyline[i - 1], polyline[i]);
}

void StrokeCanvas::add(Point a, Point b) {
  // The centre of pixel p is at p * kPixel. Only pixels within reach of the segment's bounding box
  // can be near it.
  auto first = [&](int32_t low) { return std::max(0, (low - reach_ + kPixel - 1) >> 8); };
  auto last = [&](int32_t high) { return std::min(side_ - 1, (high + reach_) >> 8); };
  const int32_t dx = b.x - a.x;
  const int32_t dy = b.y - a.y;
  const int32_t length2 = dx * dx + dy * dy;
  for (int row = first(std::min(a.y, b.y)); row <= last(std::max(a.y, b.y)); ++row) {
    for (int column = first(std::min(a.x, b.x)); column <= last(std::max(a.x, b.x)); ++column) {
      const int32_t px = column * kPixel - a.x;
      const int32_t py = row * kPixel - a.y;
      // The nearest point of the segment is a + t (b - a) / 1024, t clamped to the segment.
      const int32_t along = px * dx + py * dy;
      const int32_t t = along <= 0         ? 0
                        : along >= length2 ? 1024
                                           : static_cast<int32_t>(int64_t{along} * 1024 / length2);
      const int32_t ex = px - (t * dx >> 10);
      const int32_t ey = py - (t * dy >> 10);
      int32_t& nearest = squared_distance_[row * side_ + column];
      nearest = std::min(nearest, ex * ex + ey * ey);
    }
  }
}

int32_t StrokeCanvas::ink(int i, int32_t radius, int32_t edge) const {
  const int32_t d2 = squared_distance_[i];
  if (d2 >= (radius + edge) * (radius + edge)) return 0;
  const int32_t distance = static_cast<int32_t>(integer_sqrt(static_cast<uint32_t>(d2)));
  return clamp_byte((radius + edge - distance) * 255 / (2 * edge));
}

}  // namespace ringgrad
