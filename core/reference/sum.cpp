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
      // A total of integers wraps around, as those of the other providers do, and has a sign.
      using Signed = std::conditional_t<std::is_integral_v<A>, int64_t, A>;
      const auto scaled = scale * static_cast<double>(static_cast<Signed>(total));
      y(i) = scale == 1 ? total : static_cast<A>(number<Signed>(scaled));
    });
  });
}

REFERENCE(sum);

}  // namespace
}  // namespace ringgrad::reference
