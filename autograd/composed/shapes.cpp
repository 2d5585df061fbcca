// Parts and arrangements composed of slices.
#include <algorithm>
#include <string>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/sequences.h"

namespace ringgrad {

Tensor narrow(const Tensor& x, Int dim, Int64 begin, Int64 length) {
  check_defined("narrow", x);
  dim = normalize_dim("narrow", dim, x.dim());
  const int64_t n = x.size(dim);
  const int64_t first = begin < 0 ? begin + n : int64_t{begin};
  CHECK_AS(IndexError, length >= 0 && first >= 0 && first <= n - length, "narrow: ", length,
           " elements from ", begin, " on along dimension ", dim, " of shape ", x.shape(),
           ", expected them inside");
  return slice(x, dim, first, first + length);
}

Tensor select(const Tensor& x, Int dim, Int64 place) {
  check_defined("select", x);
  dim = normalize_dim("select", dim, x.dim());
  const int64_t n = x.size(dim);
  const int64_t at = place < 0 ? place + n : int64_t{place};
  CHECK_AS(IndexError, at >= 0 && at < n, "select: place ", place, " of dimension ", dim,
           " of shape ", x.shape(), ", expected ", -n, " to ", n - 1);
  return squeeze(slice(x, dim, at, at + 1), dim);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, Int dim) {
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    parts.push_back(narrow(x, dim, begin, size));
    begin += size;
  }
  CHECK_AS(ShapeError, begin == x.size(dim), "split: the sizes add up to ", begin, ", dimension ",
           dim, " of shape ", x.shape(), " has ", x.size(dim));
  return parts;
}

std::vector<Tensor> split(const Tensor& x, Int64 size, Int dim) {
  check_defined("split", x);
  CHECK(size >= 1, "split: the size of a part is ", size, ", expected at least 1");
  std::vector<Tensor> parts;
  for (int64_t begin = 0, n = x.size(dim); begin < n || begin == 0; begin += size)
    parts.push_back(narrow(x, dim, begin, std::min<int64_t>(size, n - begin)));
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, Int64 chunks, Int dim) {
  check_defined("chunk", x);
  CHECK(chunks >= 1, "chunk: ", chunks, " parts, expected at least 1");
  const int64_t n = x.size(dim);
  return split(x, n == 0 ? 1 : (n - 1) / chunks + 1, dim);
}

Tensor repeat(const Tensor& x, const Shape& times) {
  check_defined("repeat", x);
  CHECK_AS(ShapeError, times.dim() >= x.dim(), "repeat: ", times, " has fewer numbers than shape ",
           x.shape(), " dimensions");
  Shape shape = x.shape();
  while (shape.dim() < times.dim()) shape.insert(0, 1);
  Tensor y = reshape(x, shape);
  for (int d = 0; d < times.dim(); ++d) {
    CHECK_AS(ShapeError, times[d] >= 0, "repeat: ", times, " has a negative number");
    if (times[d] == 1) continue;
    int64_t before = 1;
    for (int i = 0; i < d; ++i) before *= shape[i];
    const int64_t behind = y.numel() / std::max<int64_t>(before, 1);
    count_elements("repeat", {shape[d], times[d]});
    shape[d] *= times[d];
    count_elements("repeat", shape);
    y = reshape(expand(reshape(y, {before, 1, behind}), {before, times[d], behind}), shape);
  }
  return y.shares_memory_with(x) ? clone(y) : y;
}

Tensor squeeze(const Tensor& x) {
  check_defined("squeeze", x);
  Shape shape;
  for (int64_t size : x.shape())
    if (size != 1) shape.push_back(size);
  return reshape(x, shape);
}

Tensor flip(const Tensor& x, const Dims& dims) {
  check_defined("flip", x);
  Tensor y = x;
  std::vector<bool> flipped(static_cast<size_t>(x.dim()));
  for (const int each : dims) {
    const int d = normalize_dim("flip", each, x.dim());
    CHECK(!flipped[d], "flip: dimension ", d, " is there twice, expected each at most once");
    flipped[d] = true;
    const int64_t last = x.size(d) - 1;
    y = index_select(y, d, neg(on_device(arange(last + 1), x.device())) + last);
  }
  return dims.empty() ? clone(x) : y;
}

Tensor roll(const Tensor& x, const std::vector<int64_t>& shifts, const Dims& dims) {
  check_defined("roll", x);
  if (dims.empty()) {
    CHECK(shifts.size() == 1, "roll: ", shifts.size(), " shifts without dimensions, expected one");
    return reshape(roll(reshape(x, {x.numel()}), shifts, 0), x.shape());
  }
  CHECK(shifts.size() == dims.size(), "roll: ", shifts.size(), " shifts for ", dims.size(),
        " dimensions, expected one for each");
  Tensor y = x;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int d = normalize_dim("roll", dims[i], x.dim());
    const int64_t n = x.size(d);
    if (n == 0) continue;
    const int64_t first = (n - shifts[i] % n) % n;  // the element that moves to the front
    y = cat({slice(y, d, first), slice(y, d, 0, first)}, d);
  }
  return y;
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, const char* indexing) {
  const std::string order = indexing;
  CHECK(order == "ij" || order == "xy", "meshgrid: the indexing is '", order,
        "', expected ij or xy");
  CHECK(!tensors.empty(), "meshgrid: the list of tensors is empty, expected at least one");
  Shape shape;
  for (const Tensor& x : tensors) {
    check_same_kind("meshgrid", tensors[0], x);
    CHECK_AS(ShapeError, x.dim() <= 1, "meshgrid: a tensor has shape ", x.shape(),
             ", expected at most one dimension");
    shape.push_back(x.numel());
  }
  std::vector<Tensor> all;
  for (int d = 0; d < shape.dim(); ++d) {
    Shape along;
    for (int i = 0; i < shape.dim(); ++i) along.push_back(i == d ? shape[d] : 1);
    const Tensor grid = expand(reshape(tensors[static_cast<size_t>(d)], along), shape);
    all.push_back(order == "xy" && shape.dim() > 1 ? transpose(grid, 0, 1) : grid);
  }
  return all;
}

// Returns x with zeros after the diagonal of each row (lower), or before it.
static Tensor triangle(const char* name, const Tensor& x, bool lower, int64_t diagonal) {
  check_defined(name, x);
  CHECK_AS(ShapeError, x.dim() >= 2, name, ": shape ", x.shape(),
           ", expected at least two dimensions");
  // Clamped to the range in which it has an effect.
  const int64_t beyond = std::clamp(diagonal, -x.size(-2), x.size(-1));
  const Tensor columns = on_device(arange(x.size(-1)), x.device());
  const Tensor ends = on_device(reshape(arange(x.size(-2)), {x.size(-2), 1}), x.device()) + beyond;
  return where(lower ? columns <= ends : ends <= columns, x, scalar_like(x, 0));
}
Tensor tril(const Tensor& x, Int64 diagonal) { return triangle("tril", x, true, diagonal); }
Tensor triu(const Tensor& x, Int64 diagonal) { return triangle("triu", x, false, diagonal); }

}  // namespace ringgrad
