// Geometry on integers, for pictures that must have the same bytes on every machine. No rounding
// mode, fused multiply-add or maths library can change them.
//
// Lengths are in 1/256 of a pixel, angles in 1/65536 of a turn, sines in 1/16384.
#pragma once

#include <array>
#include <cstdint>

namespace ringgrad {

inline constexpr int32_t kPixel = 256;
inline constexpr int32_t kTurn = 65536;
inline constexpr int32_t kOne = 16384;

// A position in a picture, y downwards.
struct Point {
  int32_t x;
  int32_t y;
  bool operator==(const Point&) const = default;
};

// The error is at most 3 / 16384. A fifth-order polynomial in the quarter turn, exact at 0 and 1.
constexpr int32_t fixed_sin(int32_t angle) {
  int32_t t = angle & (kTurn - 1);  // [0, 65536)
  if (t >= 3 * kTurn / 4)
    t -= kTurn;  // the last quarter is the first, below zero
  else if (t > kTurn / 4)
    t = kTurn / 2 - t;  // the middle half is mirrored
  const int64_t z = t;  // [-16384, 16384]: the quarter turn is 1
  const int64_t z2 = z * z >> 14;
  // sin(pi/2 z) = z (a - z^2 (b - z^2 c)) with a = pi/2, b = pi - 5/2, c = pi/2 - 3/2, in 1/16384
  return static_cast<int32_t>(z * (25736 - (z2 * (10512 - (z2 * 1160 >> 14)) >> 14)) >> 14);
}
constexpr int32_t fixed_cos(int32_t angle) { return fixed_sin(angle + kTurn / 4); }

// Returns the largest integer whose square is at most x.
constexpr uint32_t integer_sqrt(uint32_t x) {
  uint32_t root = 0;
  for (uint32_t bit = 1u << 30; bit != 0; bit >>= 2) {
    if (x >= root + bit) {
      x -= root + bit;
      root = (root >> 1) + bit;
    } else {
      root >>= 1;
    }
  }
  return root;
}

// A linear map of the plane, with entries in 1/16384.
struct Matrix2 {
  int32_t xx;
  int32_t xy;
  int32_t yx;
  int32_t yy;

  constexpr Point operator*(Point p) const {
    return {static_cast<int32_t>((int64_t{xx} * p.x + int64_t{xy} * p.y) >> 14),
            static_cast<int32_t>((int64_t{yx} * p.x + int64_t{yy} * p.y) >> 14)};
  }
  constexpr Matrix2 operator*(const Matrix2& m) const {
    const Point left = *this * Point{m.xx, m.yx};
    const Point right = *this * Point{m.xy, m.yy};
    return {left.x, right.x, left.y, right.y};
  }
  static constexpr Matrix2 rotation(int32_t angle) {
    return {fixed_cos(angle), -fixed_sin(angle), fixed_sin(angle), fixed_cos(angle)};
  }
};

constexpr int32_t clamp_byte(int32_t value) { return value < 0 ? 0 : value > 255 ? 255 : value; }

}  // namespace ringgrad
