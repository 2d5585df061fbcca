// Reference: sums over some dimensions.
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

void sum(Stream, const Tensor& y_out, const Tensor& x_in, double scale) {
  if (x_in.dtype() == DType::Bool) throw_unsupported_dtype("sum", x_in.dtype(), "a number");
  with_numbers<uint64_t>(x_in.dtype(), [&]<class A>() {
    const Elements<A> x(x_in);
    const Results<A> y(y_out);
    for_each_index(y.shape(), [&](const Shape& i) {
      A total = 0;
      for_each_meeting(i, y.shape(), x.shape(), [&](const Shape& j) { total += x(j); });
      y(i) = scale == 1 ? total : number<A>(scale * static_cast<double>(total));
    });
  });
}

REFERENCE(sum);

}  // namespace
}  // namespace ringgrad::reference
