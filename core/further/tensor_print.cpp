#include <ostream>

#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

// Larger tensors show the first and last three elements of each dimension.
constexpr int64_t kAbbreviateAbove = 1000;
constexpr int64_t kEdge = 3;

template <class T>
void print_dimension(std::ostream& out, const std::vector<T>& values, const Shape& shape, int d,
                     int64_t offset) {
  if (d == shape.dim()) {
    out << values[offset];
    return;
  }
  int64_t step = 1;
  for (int inner = d + 1; inner < shape.dim(); ++inner) step *= shape[inner];
  out << '[';
  for (int64_t i = 0; i < shape[d]; ++i) {
    if (i > 0) out << (d + 1 == shape.dim() ? ", " : ",\n" + std::string(d + 1, ' '));
    if (std::ssize(values) > kAbbreviateAbove && i == kEdge && shape[d] > 2 * kEdge) {
      out << "…";
      i = shape[d] - kEdge - 1;
      continue;
    }
    print_dimension(out, values, shape, d + 1, offset + i * step);
  }
  out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const Tensor& tensor) {
  if (!tensor) return stream << "undefined tensor";
  TextOutput out;  // the stream's locale may not be the classic one
  out.flags(stream.flags());
  out.precision(5);
  if (tensor.numel() == 0)
    out << "[]";
  else if (is_floating(tensor.dtype()))
    print_dimension(out, to_vector<double>(tensor), tensor.shape(), 0, 0);
  else
    print_dimension(out, to_vector<int64_t>(tensor), tensor.shape(), 0, 0);
  out << "\n" << tensor.shape() << ' ' << tensor.dtype() << ' ' << tensor.device();
  return stream << out.str();
}

}  // namespace ringgrad
