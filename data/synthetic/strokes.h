// Pen strokes on a small grey picture: smooth curves through a few points, drawn with a round pen.
#pragma once

#include <span>
#include <vector>

#include "ringgrad/data/synthetic/fixed_point.h"

namespace ringgrad {

// Points close together on a smooth curve through all of `control` (a uniform Catmull–Rom spline with `pieces` straight
// pieces per span; closed where the first point is also the last). Two points give the straight line between them.
std::vector<Point> spline(std::span<const Point> control, int pieces);

// How far each pixel's centre of a side × side picture is from the strokes drawn so far, near them.
class StrokeCanvas {
 public:
  // Distances are kept up to `reach`: the thickest pen's radius and one pixel.
  StrokeCanvas(int side, int32_t reach);

  void add(std::span<const Point> polyline);
  // What a pen of this radius leaves on pixel i (row-major), 0 to 255: full inside, falling to 0 over `edge` around
  // the radius. REQUIRES: radius + edge <= reach.
  int32_t ink(int i, int32_t radius, int32_t edge) const;

 private:
  void add(Point a, Point b);

  int side_;
  int32_t reach_;
  std::vector<int32_t> squared_distance_;
};

}  // namespace ringgrad
