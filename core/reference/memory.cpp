// Reference: filling and copying.
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

void fill(Stream, const Tensor& x, Scalar value) {
  with_numbers<int64_t>(x.dtype(), [&]<class A>() {
    const Results<A> to(x);
    const A converted = x.dtype() == DType::Bool ? static_cast<A>(value.to<bool>()) : value.to<A>();
    for_each_index(x.shape(), [&](const Shape& i) { to(i) = converted; });
  });
}

void copy(Stream, const Tensor& y, const Tensor& x) {
  map(
      y, [](auto value) { return value; }, x);
}

void copy_to_host(Stream stream, const Tensor& x, const Tensor& host_y) { copy(stream, host_y, x); }

REFERENCE(fill);
REFERENCE(copy);
REFERENCE(copy_to_host);

}  // namespace
}  // namespace ringgrad::reference
