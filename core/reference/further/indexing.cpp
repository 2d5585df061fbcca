// Reference: selection of elements by an index, and the gradients. An index outside is skipped.
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// Calls body(o, j, i, n) for each element [o, j, i] of an array of shape `chosen`, with the
// position n = at(o, j, i) if n is in [0, places).
template <class At, class Body>
void for_each_named(const Shape& chosen, int64_t places, const At& at, const Body& body) {
  for_each_index(chosen, [&](const Shape& index) {
    const int64_t n = at(index[0], index[1], index[2]);
    if (n >= 0 && n < places) body(index[0], index[1], index[2], n);
  });
}

template <class At>
void pick(const Tensor& y_out, const Tensor& x_in, const At& at) {
  with_numbers<int64_t>(x_in.dtype(), [&]<class A>() {
    const Elements<A> x(x_in);
    const Results<A> y(y_out);
    for_each_named(y.shape(), x.shape()[1], at,
                   [&](int64_t o, int64_t j, int64_t i, int64_t n) { y(o, j, i) = x(o, n, i); });
  });
}

// Adds each dy to the dx that it was selected from, in the order of j.
template <class At>
void add_each(const Tensor& dx_out, const Tensor& dy_in, const At& at) {
  with_numbers<uint64_t>(dx_out.dtype(), [&]<class A>() {
    const Elements<A> dy(dy_in);
    const Results<A> dx(dx_out);
    std::vector<A> sums;
    for_each_index(dx.shape(), [&](const Shape& i) { sums.push_back(dx(i)); });
    const int64_t places = dx.shape()[1];
    const int64_t inner = dx.shape()[2];
    for_each_named(dy.shape(), places, at, [&](int64_t o, int64_t j, int64_t i, int64_t n) {
      sums[(o * places + n) * inner + i] += dy(o, j, i);
    });
    auto sum = sums.begin();
    for_each_index(dx.shape(), [&](const Shape& i) { dx(i) = *sum++; });
  });
}

void index_select(Stream, const Tensor& y, const Tensor& x, const Tensor& index_in) {
  const Elements<int64_t> index(index_in);
  pick(y, x, [&](int64_t, int64_t j, int64_t) -> int64_t { return index(j); });
}
void index_add(Stream, const Tensor& dx, const Tensor& dy, const Tensor& index_in) {
  const Elements<int64_t> index(index_in);
  add_each(dx, dy, [&](int64_t, int64_t j, int64_t) -> int64_t { return index(j); });
}
void gather(Stream, const Tensor& y, const Tensor& x, const Tensor& index_in) {
  const Elements<int64_t> index(index_in);
  pick(y, x, [&](int64_t o, int64_t j, int64_t i) -> int64_t { return index(o, j, i); });
}
void scatter_add(Stream, const Tensor& dx, const Tensor& dy, const Tensor& index_in) {
  const Elements<int64_t> index(index_in);
  add_each(dx, dy, [&](int64_t o, int64_t j, int64_t i) -> int64_t { return index(o, j, i); });
}

REFERENCE(index_select);
REFERENCE(index_add);
REFERENCE(gather);
REFERENCE(scatter_add);

}  // namespace
}  // namespace ringgrad::reference
