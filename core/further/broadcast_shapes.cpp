#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/shape.h"

namespace ringgrad {

Shape broadcast_shapes(const char* operation, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const Shape& longer = a.dim() >= b.dim() ? a : b;
  const Shape& shorter = a.dim() >= b.dim() ? b : a;
  Shape result = longer;
  const int offset = longer.dim() - shorter.dim();
  for (int d = 0; d < shorter.dim(); ++d) {
    const int64_t x = longer[d + offset];
    const int64_t y = shorter[d];
    CHECK_AS(ShapeError, x == y || x == 1 || y == 1, operation, ": shapes ", a, " and ", b,
             " cannot be broadcast: dimension ", d + offset - longer.dim(), " has sizes ", x,
             " and ", y, ", expected equal sizes or 1");
    result[d + offset] = x == 1 ? y : x;
  }
  return result;
}

void Shape::erase(int d) {
  std::copy(begin() + d + 1, end(), begin() + d);
  --dim_;
}

}  // namespace ringgrad
