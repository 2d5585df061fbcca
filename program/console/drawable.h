// Limits the numbers of a chart, which come from files that any program may have written.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

namespace ringgrad::program {

// Returns the number as a chart draws it: 0 if it is nearer to 0 than 1e-290, and at most 1e290
// away from it. Sums, differences and logarithms of such numbers are finite, and no power of ten
// between two of them is 0. NaN stays.
inline double drawable(double x) {
  constexpr double kFarthest = 1e290;
  return std::abs(x) < 1 / kFarthest ? 0 : std::clamp(x, -kFarthest, kFarthest);
}

// The same of the points of all curves, without those that have a NaN.
template <class Curve>
std::vector<Curve> drawable(std::vector<Curve> curves) {
  for (Curve& curve : curves) {
    std::erase_if(curve.points,
                  [](const auto& point) { return std::isnan(point[0]) || std::isnan(point[1]); });
    for (auto& point : curve.points) point = {drawable(point[0]), drawable(point[1])};
  }
  return curves;
}

}  // namespace ringgrad::program
