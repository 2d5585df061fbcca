#include <iomanip>
#include <ostream>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {
namespace {

constexpr int64_t kAbbreviateAbove = 1000, kEdge = 3;  // of more elements, the first and last three of each dimension

template <class T>
void print_dimension(std::ostream& out, const std::vector<T>& values, const Shape& shape, int d, int64_t offset,
                     bool abbreviate) {
  if (d == shape.dim()) {
    out << values[offset];
    return;
  }
  int64_t step = 1;
  for (int inner = d + 1; inner < shape.dim(); ++inner) step *= shape[inner];
  out << '[';
  for (int64_t i = 0; i < shape[d]; ++i) {
    if (i > 0) out << (d + 1 == shape.dim() ? ", " : ",\n" + std::string(d + 1, ' '));
    if (abbreviate && i == kEdge && shape[d] > 2 * kEdge) {
      out << "…";
      i = shape[d] - kEdge - 1;
      continue;
    }
    print_dimension(out, values, shape, d + 1, offset + i * step, abbreviate);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  if (!tensor) return out << "undefined tensor";
  const auto precision = out.precision(5);
  const bool abbreviate = tensor.numel() > kAbbreviateAbove;
  if (tensor.numel() == 0)
    out << "[]";
  else if (is_floating(tensor.dtype()))
    print_dimension(out, to_vector<double>(tensor), tensor.shape(), 0, 0, abbreviate);
  else
    print_dimension(out, to_vector<int64_t>(tensor), tensor.shape(), 0, 0, abbreviate);
  out.precision(precision);
  return out << "\n" << tensor.shape() << ' ' << tensor.dtype() << ' ' << tensor.device();
}

}  // namespace ringgrad
