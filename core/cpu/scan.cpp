// Along the middle dimension of x [O, N, I], one column after the other, on the CPU: running sums, and the order of the
// elements.
#include <algorithm>
#include <numeric>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// body(first, stride, n) for each column: its elements are first, first + stride, … of the array.
template <class Body>
void for_each_column(Stream stream, const Tensor& x, Body&& body) {
  ASSERT(x.dim() == 3 && x.is_contiguous());
  const int64_t n = x.shape()[1], inner = x.shape()[2];
  parallel_for(stream, x.shape()[0] * inner, grain(4 * n), [&](int64_t begin, int64_t end) {
    for (int64_t column = begin; column < end; ++column) body(column / inner * n * inner + column % inner, inner, n);
  });
}

void cumsum_cpu(Stream stream, const Tensor& y, const Tensor& x, bool reverse) {
  visit_number("cumsum", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    for_each_column(stream, x, [=, to = y.data<T>(), from = x.data<T>()](int64_t first, int64_t stride, int64_t n) {
      std::conditional_t<std::is_integral_v<A>, Wrapping<A>, double> sum = 0;  // no longer sum than this loses digits
      for (int64_t i = 0; i < n; ++i) {
        const int64_t at = first + (reverse ? n - 1 - i : i) * stride;
        sum += static_cast<decltype(sum)>(static_cast<A>(from[at]));
        to[at] = static_cast<T>(static_cast<A>(sum));
      }
    });
  });
}

void argsort_cpu(Stream stream, const Tensor& index, const Tensor& x, bool descending) {
  visit_dtype("argsort", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const auto less = [](A a, A b) { return a < b || (b != b && a == a); };  // a NaN is the largest
    for_each_column(
        stream, x, [=, to = index.data<int64_t>(), from = x.data<T>()](int64_t first, int64_t stride, int64_t n) {
          std::vector<int64_t> order(n);
          std::iota(order.begin(), order.end(), 0);
          const auto at = [=](int64_t i) { return static_cast<A>(from[first + i * stride]); };
          std::stable_sort(order.begin(), order.end(),
                           [&](int64_t a, int64_t b) { return descending ? less(at(b), at(a)) : less(at(a), at(b)); });
          for (int64_t i = 0; i < n; ++i) to[first + i * stride] = order[i];
        });
  });
}

REGISTER_KERNEL(cumsum, DeviceType::CPU, Provider::Native, cumsum_cpu);
REGISTER_KERNEL(argsort, DeviceType::CPU, Provider::Native, argsort_cpu);

}  // namespace
}  // namespace ringgrad::cpu
