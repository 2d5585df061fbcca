// Reference: running sums, and the sorted order of the elements along a dimension.
#include <algorithm>

#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

void cumsum(Stream, const Tensor& y_out, const Tensor& x_in, bool reverse) {
  if (x_in.dtype() == DType::Bool) throw_unsupported_dtype("cumsum", x_in.dtype(), "a number");
  with_numbers<uint64_t>(x_in.dtype(), [&]<class A>() {
    const Elements<A> x(x_in);
    const Results<A> y(y_out);
    const int64_t length = x.shape()[1];
    for_each_index({x.shape()[0], x.shape()[2]}, [&](const Shape& i) {
      A total = 0;
      for (int64_t n = 0; n < length; ++n) {
        const int64_t at = reverse ? length - 1 - n : n;
        total += x(i[0], at, i[1]);
        y(i[0], at, i[1]) = total;
      }
    });
  });
}

void argsort(Stream, const Tensor& index_out, const Tensor& x_in, bool descending) {
  with_numbers<int64_t>(x_in.dtype(), [&]<class A>() {
    const Elements<A> x(x_in);
    const Results<int64_t> index(index_out);
    for_each_index({x.shape()[0], x.shape()[2]}, [&](const Shape& i) {
      std::vector<int64_t> order(x.shape()[1]);
      std::iota(order.begin(), order.end(), 0);
      // NaN is the largest.
      const auto is_less = [](A a, A b) { return a < b || (a == a && b != b); };
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const A first = x(i[0], a, i[1]);
        const A second = x(i[0], b, i[1]);
        return descending ? is_less(second, first) : is_less(first, second);
      });
      for (int64_t k = 0; k < index.shape()[1]; ++k) index(i[0], k, i[1]) = order[k];
    });
  });
}

REFERENCE(cumsum);
REFERENCE(argsort);

}  // namespace
}  // namespace ringgrad::reference
