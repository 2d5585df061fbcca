#include "ringgrad/data/synthetic/strokes.h"

#include <algorithm>

namespace ringgrad {

std::vector<Point> spline(std::span<const Point> control, int pieces) {
  const int last = static_cast<int>(control.size()) - 1;
  const bool closed = control[0] == control[last];
  // A phantom point before the first and after the last: the curve's other end where it is closed, else a mirror image.
  auto at = [&](int i) -> Point {
    if (i >= 0 && i <= last) return control[i];
    if (closed) return control[i < 0 ? last - 1 : 1];
    const Point end = control[i < 0 ? 0 : last], inner = control[i < 0 ? 1 : last - 1];
    return {2 * end.x - inner.x, 2 * end.y - inner.y};
  };
  std::vector<Point> points{control[0]};
  points.reserve(last * pieces + 1);
  for (int i = 0; i < last; ++i) {
    const Point p0 = at(i - 1), p1 = at(i), p2 = at(i + 1), p3 = at(i + 2);
    for (int piece = 1; piece <= pieces; ++piece) {
      const int64_t t = int64_t{piece} * 256 / pieces, t2 = t * t >> 8, t3 = t2 * t >> 8;
      auto blend = [&](int32_t a, int32_t b, int32_t c, int32_t d) {
        return static_cast<int32_t>(
            (512 * b + t * (c - a) + t2 * (2 * a - 5 * b + 4 * c - d) + t3 * (3 * b - a - 3 * c + d)) >> 9);
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
  // Pixel p has its centre at p * kPixel; only those within reach of the segment's bounding box can be near it.
  auto first = [&](int32_t low) { return std::max(0, (low - reach_ + kPixel - 1) >> 8); };
  auto last = [&](int32_t high) { return std::min(side_ - 1, (high + reach_) >> 8); };
  const int32_t dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
  for (int row = first(std::min(a.y, b.y)); row <= last(std::max(a.y, b.y)); ++row) {
    for (int column = first(std::min(a.x, b.x)); column <= last(std::max(a.x, b.x)); ++column) {
      const int32_t px = column * kPixel - a.x, py = row * kPixel - a.y;
      // The nearest point of the segment is a + t (b - a) / 1024, t clamped to the segment.
      const int32_t along = px * dx + py * dy;
      const int32_t t = along <= 0         ? 0
                        : along >= length2 ? 1024
                                           : static_cast<int32_t>(int64_t{along} * 1024 / length2);
      const int32_t ex = px - (t * dx >> 10), ey = py - (t * dy >> 10);
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
