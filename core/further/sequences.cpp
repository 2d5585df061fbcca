// Tensors that training does not create: sequences, the identity, and views of the caller's memory.
#include <algorithm>
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"

namespace ringgrad {

Tensor arange(Int64 n, TensorOptions options) {
  CHECK_AS(ShapeError, n >= 0, "arange: ", n, " numbers, expected at least 0");
  return arange(0, n, 1, options);
}

// Makes x [n] with x[i] = value(i). `first` and `last` are its first and last values.
template <class T, class Value>
static Tensor sequence(const char* operation, int64_t n, std::pair<Scalar, Scalar> ends,
                       TensorOptions options, const Value& value) {
  if (n > 0) {
    check_holds(operation, options.dtype, ends.first);
    check_holds(operation, options.dtype, ends.second);
  }
  Tensor x = empty({n}, options);  // comes first: throws if the result does not fit into memory
  std::vector<T> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = value(i);
  copy_(x, tensor(values));
  return x;
}

__extension__ using Wide = __int128;  // holds sums and products of integers that exceed int64

Tensor arange(Scalar begin, Scalar end, Scalar step, TensorOptions options) {
  const auto lead_there = [&](bool do_lead) {
    CHECK(do_lead, "arange: from ", begin, " to ", end, " in steps of ", step,
          ", expected finite numbers and steps that lead there");
  };
  if (begin.is_integer() && end.is_integer() && step.is_integer()) {
    const Wide first = begin.to<int64_t>();
    const Wide way = end.to<int64_t>() - first;
    const Wide stride = step.to<int64_t>();
    lead_there(stride != 0 && (way == 0 || (way < 0) == (stride < 0)));
    const Wide count = (way + stride + (stride > 0 ? -1 : 1)) / stride;  // rounds up
    const auto n = static_cast<int64_t>(std::min<Wide>(count, INT64_MAX));
    const auto value = [&](int64_t i) { return static_cast<int64_t>(first + i * stride); };
    return sequence<int64_t>("arange", n, {begin, value(n - 1)}, options, value);
  }
  const auto first = begin.to<double>();
  const auto stride = step.to<double>();
  const auto steps = (end.to<double>() - first) / stride;
  lead_there(stride != 0 && steps >= 0 && std::isfinite(steps));
  CHECK_AS(ShapeError, steps < 0x1p56, "arange: ", steps, " numbers do not fit into memory");
  const auto n = static_cast<int64_t>(std::ceil(steps));
  return linspace(first, first + static_cast<double>(n - 1) * stride, n, options);
}

Tensor arange(Scalar begin, Scalar end, Scalar step) {
  const bool whole = begin.is_integer() && end.is_integer() && step.is_integer();
  return arange(begin, end, step, {.dtype = whole ? DType::Int64 : DType::Float32});
}

Tensor linspace(Scalar begin, Scalar end, Int64 steps, TensorOptions options) {
  CHECK_AS(ShapeError, steps >= 0, "linspace: ", steps, " numbers, expected at least 0");
  const int64_t gaps = std::max<int64_t>(steps - 1, 1);
  if (begin.is_integer() && end.is_integer() && !is_floating(options.dtype)) {
    const Wide first = begin.to<int64_t>();
    const Wide way = end.to<int64_t>() - first;
    return sequence<int64_t>("linspace", steps, {begin, end}, options, [&](int64_t i) {
      return static_cast<int64_t>((first * gaps + way * i) / gaps);
    });
  }
  const auto first = begin.to<double>();
  const auto last = end.to<double>();
  const double step = steps > 1 ? (last - first) / static_cast<double>(gaps) : 0;
  return sequence<double>("linspace", steps, {begin, end}, options, [&](int64_t i) {
    // Counts from the nearer end, so that both ends are exact.
    return 2 * i < steps ? first + static_cast<double>(i) * step
                         : last - static_cast<double>(steps - 1 - i) * step;
  });
}

Tensor eye(Int64 rows, Int64 columns, TensorOptions options) {
  Tensor x = zeros({rows, columns}, options);
  const int64_t n = std::min(rows, columns);
  if (n > 0) fill_(x.as_strided({n}, {columns + 1}, 0), 1);
  return x;
}

Tensor from_blob(void* data, const Shape& shape, DType dtype, std::function<void()> release) {
  const int64_t elements = count_elements("from_blob", shape);
  CHECK(data != nullptr || elements == 0, "from_blob: the address is null, expected ", elements,
        " elements");
  CHECK(release != nullptr,
        "from_blob: there is no release function; leave it out where there is nothing to release");
  const size_t bytes = static_cast<size_t>(elements) * itemsize(dtype);
  return Tensor(std::make_shared<Storage>(data, bytes, Device{}, std::move(release)), shape,
                contiguous_strides(shape), 0, dtype);
}

}  // namespace ringgrad
