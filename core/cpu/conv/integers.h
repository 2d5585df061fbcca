// Columns of float32 numbers as columns of 16-bit integers, whose products are summed exactly.
//
// Note [Products of 16-bit integers]
// A processor that multiplies pairs of 16-bit numbers does twice as many products as in float32. A
// bfloat16 number has 8 significant bits; a 16-bit integer has 15, if its scale is right. The
// numbers of a column share one scale, which makes the sum of their squares kNorm². By the
// inequality of Cauchy and Schwarz, no sum of products of two columns exceeds kNorm², nor does any
// part of it. So 32 bits hold it whatever the numbers are. Rounding changes a number by 0.3 (rms),
// while the column's root mean square is kNorm / √n. For n = 100 that is a relative error of 1e-4.
#pragma once

#include <array>

#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::conv {

inline constexpr float kNorm = 32000;  // leaves room for rounding below 2^15

inline Vector root(Vector v) {
  float lanes[kLanes];
  store(lanes, v);
  for (float& lane : lanes) lane = __builtin_sqrtf(lane);
  return load(lanes);
}

// Returns the Euclidean norm of a column of `count` vectors, lane by lane. It is not finite if a
// number is not.
inline Vector column_norm(const float* column, int64_t count) {
  const auto reduce = [&](auto step) {
    Vector sum[4] = {};
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) RINGGRAD_UNROLL
    for (int j = 0; j < 4; ++j) sum[j] = step(sum[j], load(column + (i + j) * kLanes));
    for (; i < count; ++i) sum[0] = step(sum[0], load(column + i * kLanes));
    return std::array{sum[0], sum[1], sum[2], sum[3]};
  };
  const auto squares = reduce([](Vector sum, Vector v) { return sum + v * v; });
  const Vector sum = (squares[0] + squares[1]) + (squares[2] + squares[3]);
  // This holds if no square has left the range of float32.
  if (all((sum > 1e-30f) & (sum < 1e30f))) return root(sum);
  const auto larger = [](Vector a, Vector b) { return a < b ? b : a; };
  const auto part = reduce([&](Vector most, Vector v) { return larger(most, larger(v, -v)); });
  const Vector most =
      larger(Vector{} + 1e-37f, larger(larger(part[0], part[1]), larger(part[2], part[3])));
  const Vector unit = 1.0f / most;
  const auto scaled = reduce([=](Vector sum, Vector v) { return sum + v * unit * (v * unit); });
  return most * root((scaled[0] + scaled[1]) + (scaled[2] + scaled[3]));
}

// Writes the column as pairs of neighbours, `stride` words from one pair to the next. Returns its
// scales: an integer times its scale is the number. A column that is not finite has a scale that is
// not, and so has no finite product.
inline Vector store_as_integers(const float* column, int64_t count, float* words, int64_t stride) {
  const Vector norm = column_norm(column, count);
  const Vector least = Vector{} + 1e-34f;
  const Vector divisor = norm < least ? least : norm;
  const Vector scale = kNorm / divisor;
  for (int64_t i = 0; i < count; i += 2, words += stride)
    store(words,
          integer_pair_of(load(column + i * kLanes),
                          i + 1 < count ? load(column + (i + 1) * kLanes) : Vector{}, scale));
  return divisor / kNorm;
}

}  // namespace ringgrad::conv
