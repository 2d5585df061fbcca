// Reference: weighted sums of rows, and of their pixels.
#include "ringgrad/core/kernels/interpolation_kernels.h"

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// body(place, weight) for those of output i.
template <class Body>
void for_each_place(const AxisWeights& axis, int64_t i, const Body& body) {
  const Elements<int64_t> begin(axis.begin);
  const Elements<int64_t> index(axis.index);
  const Elements<double> weight(axis.weight);
  for (int64_t j = begin(i); j < begin(i + 1); ++j) body(int64_t{index(j)}, double{weight(j)});
}

void interpolate(Stream, const Tensor& y_out, const Tensor& x_in, const AxisWeights& rows,
                 const AxisWeights& columns) {
  const Elements<double> x(x_in);
  const Results<double> y(y_out);
  for_each_index(y.shape(), [&](const Shape& at) {
    double sum = 0;
    for_each_place(columns, at[2], [&](int64_t column, double of_column) {
      for_each_place(rows, at[1], [&](int64_t row, double of_row) {
        sum += of_column * of_row * x(at[0], row, column, at[3]);
      });
    });
    y(at) = sum;
  });
}

REFERENCE(interpolate);

}  // namespace
}  // namespace ringgrad::reference
