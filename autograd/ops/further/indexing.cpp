#include "ringgrad/autograd/ops.h"

#include <atomic>

#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

// Checks that the index is int64, on x's device, and, if the host can look without waiting, within
// [0, size).
void check_index(const char* operation, const Tensor& index, int64_t size) {
  check_defined(operation, index);
  CHECK_AS(DTypeError, index.dtype() == DType::Int64, operation, ": the index has dtype ",
           index.dtype(), ", expected int64; convert with to(index, DType::Int64)");
  if (!index.device().is_cpu()) return;
  const Tensor values = as_contiguous(index);
  const int64_t* value = values.data<int64_t>();
  const int64_t n = values.numel();
  // Its sign tells whether an index is outside; computing it takes a loop without branches.
  std::atomic<uint64_t> outside = 0;
  parallel_for(current_stream(index.device()), n, 32768, [&](int64_t begin, int64_t end) {
    uint64_t here = 0;
    for (int64_t i = begin; i < end; ++i)
      here |= static_cast<uint64_t>(value[i]) |
              (static_cast<uint64_t>(size - 1) - static_cast<uint64_t>(value[i]));
    outside |= here;
  });
  if (static_cast<int64_t>(outside.load()) >= 0) return;
  for (int64_t i = 0; i < n; ++i)
    CHECK_AS(IndexError, value[i] >= 0 && value[i] < size, operation, ": element ", i,
             " of the index is ", value[i], ", expected 0 to ", size - 1);
}

void check_devices(const char* operation, const Tensor& x, const Tensor& index) {
  check_defined(operation, x);
  check_defined(operation, index);
  CHECK_AS(DeviceError, x.device() == index.device(), operation, ": the tensor is on ", x.device(),
           ", the index on ", index.device(), ", expected one device; move with to(x, device)");
}

// Checks that the index selects elements of x along `dim`. Returns dim as a non-negative number.
int check_elements(const char* operation, const Tensor& x, int dim, const Tensor& index) {
  check_devices(operation, x, index);
  dim = normalize_dim(operation, dim, x.dim());
  bool fits = index.dim() == x.dim();
  for (int d = 0; fits && d < x.dim(); ++d) fits = d == dim || index.shape()[d] == x.shape()[d];
  CHECK_AS(ShapeError, fits, operation, ": the tensor has shape ", x.shape(), ", the index ",
           index.shape(), ", expected equal sizes in all dimensions but ", dim);
  check_index(operation, index, x.shape()[dim]);
  return dim;
}

void check_values(const char* operation, const Tensor& x, const Tensor& values,
                  const Shape& shape) {
  check_same_kind(operation, x, values);
  CHECK_AS(ShapeError, values.shape() == shape, operation, ": the values have shape ",
           values.shape(), ", expected ", shape, ", one for each place that the index names");
}

}  // namespace

Tensor index_select(const Tensor& x_, Int dim, const Tensor& index_) {
  OpScope scope("index_select");
  check_devices("index_select", x_, index_);
  dim = normalize_dim("index_select", dim, x_.dim());
  check_dim("index_select", "the index", index_, 1);
  check_index("index_select", index_, x_.shape()[dim]);
  const Tensor x = strided_contiguous(x_);
  const Tensor index = strided_contiguous(index_);
  Shape shape = x.shape();
  shape[dim] = index.size(0);
  Tensor y = empty(shape, x.options());
  kernels::index_select(around_dim(y, dim), around_dim(x, dim), index);
  return differentiable("index_select", {x}, y,
                        [from = x.shape(), dim, index = save(index),
                         home = GradientHome(x)](const Tensor& dy) -> Gradients {
                          const TensorOptions options = {dy.dtype(), dy.device()};
                          if (grad_enabled())
                            return {index_add(zeros(from, options), dim, index.get(), dy)};
                          Tensor dx = home.claim();
                          if (!dx) dx = zeros(from, options);
                          kernels::index_add(around_dim(dx, dim),
                                             around_dim(strided_contiguous(dy), dim), index.get());
                          return {dx};
                        });
}

Tensor gather(const Tensor& x_, Int dim, const Tensor& index_) {
  OpScope scope("gather");
  dim = check_elements("gather", x_, dim, index_);
  const Tensor x = strided_contiguous(x_);
  const Tensor index = strided_contiguous(index_);
  Tensor y = empty(index.shape(), x.options());
  kernels::gather(around_dim(y, dim), around_dim(x, dim), around_dim(index, dim));
  return differentiable(
      "gather", {x}, y,
      [from = x.shape(), dim, index = save(index)](const Tensor& dy) -> Gradients {
        Tensor dx = zeros(from, {dy.dtype(), dy.device()});
        if (grad_enabled()) return {scatter_add(dx, dim, index.get(), dy)};
        kernels::scatter_add(around_dim(dx, dim), around_dim(strided_contiguous(dy), dim),
                             around_dim(index.get(), dim));
        return {dx};
      });
}

Tensor scatter_add(const Tensor& x, Int dim, const Tensor& index_, const Tensor& values) {
  OpScope scope("scatter_add");
  dim = check_elements("scatter_add", x, dim, index_);
  check_values("scatter_add", x, values, index_.shape());
  const Tensor index = strided_contiguous(index_);
  const Tensor y = copy_of(x, {x.dtype(), x.device()});
  kernels::scatter_add(around_dim(y, dim), around_dim(as_contiguous(values), dim),
                       around_dim(index, dim));
  return differentiable(
      "scatter_add", {x, values}, y,
      [dim, index = save(index), wants_values = wants_grad(values)](const Tensor& dy) -> Gradients {
        return {dy, wants_values ? gather(dy, dim, index.get()) : Tensor()};
      });
}

Tensor scatter(const Tensor& x, Int dim, const Tensor& index, const Tensor& values) {
  const Tensor none = zeros(x.shape(), {x.dtype(), x.device()});
  const Tensor one = ones(index.shape(), {DType::Int64, x.device()});
  const Tensor put = scatter_add(none, dim, index, values);
  return where(scatter_add(to(none, DType::Int64), dim, index, one) > 0, put, x);
}

Tensor index_add(const Tensor& x, Int dim, const Tensor& index_, const Tensor& values) {
  OpScope scope("index_add");
  check_devices("index_add", x, index_);
  dim = normalize_dim("index_add", dim, x.dim());
  check_dim("index_add", "the index", index_, 1);
  check_index("index_add", index_, x.shape()[dim]);
  Shape shape = x.shape();
  shape[dim] = index_.size(0);
  check_values("index_add", x, values, shape);
  const Tensor index = strided_contiguous(index_);
  const Tensor y = copy_of(x, {x.dtype(), x.device()});
  kernels::index_add(around_dim(y, dim), around_dim(as_contiguous(values), dim), index);
  return differentiable(
      "index_add", {x, values}, y,
      [dim, index = save(index), wants_values = wants_grad(values)](const Tensor& dy) -> Gradients {
        return {dy, wants_values ? index_select(dy, dim, index.get()) : Tensor()};
      });
}

Tensor embedding(const Tensor& index, const Tensor& weight, std::optional<int64_t> padding_idx) {
  check_defined("embedding", index);
  check_defined("embedding", weight);
  CHECK_AS(ShapeError, weight.dim() >= 1, "embedding: the weight has shape [], expected [n, …]");
  Shape shape = index.shape();
  for (int d = 1; d < weight.dim(); ++d) shape.push_back(weight.size(d));
  const Tensor flat = reshape(index, {index.numel()});
  Tensor rows = index_select(weight, 0, flat);
  if (padding_idx) {
    Shape column = {flat.numel()};
    while (column.dim() < rows.dim()) column.push_back(1);
    const int64_t row = *padding_idx < 0 ? *padding_idx + weight.size(0) : *padding_idx;
    CHECK_AS(IndexError, row >= 0 && row < weight.size(0), "embedding: padding_idx is ",
             *padding_idx, ", the weight has ", weight.size(0), " rows");
    rows = where(reshape(flat == row, column), rows.detach(), rows);
  }
  return reshape(rows, shape);
}

Tensor one_hot(const Tensor& index_, Int64 num_classes, DType dtype) {
  OpScope scope("one_hot");
  CHECK(num_classes >= 1, "one_hot: the number of classes is ", num_classes,
        ", expected at least 1");
  check_index("one_hot", index_, num_classes);
  const Tensor index = strided_contiguous(index_);
  Shape shape = index.shape();
  shape.push_back(num_classes);
  Tensor y = zeros(shape, {dtype, index.device()});
  const Shape column = {index.numel(), 1, 1};
  kernels::scatter_add(y.as_strided({index.numel(), num_classes, 1}, {num_classes, 1, 1}, 0),
                       ones(column, {dtype, index.device()}),
                       index.as_strided(column, {1, 1, 1}, index.storage_offset()));
  return y;
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check_mask("masked_select", mask, x);
  const Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  const Tensor places = nonzero(reshape(expand(mask, shape), {shape.numel()}));
  return index_select(reshape(expand(x, shape), {shape.numel()}), 0,
                      reshape(places, {places.numel()}));
}

Tensor nonzero(const Tensor& mask) {
  check_mask("nonzero", mask, mask);
  const Tensor host = copy_of(mask, {.dtype = DType::Bool});
  const bool* chosen = host.data<bool>();
  const int64_t n = host.numel();
  const int dims = mask.dim();
  const int last = dims - 1;
  const Tensor places =
      empty({std::count(chosen, chosen + n, true), dims}, {.dtype = DType::Int64});
  int64_t* to = places.data<int64_t>();
  constexpr int64_t kPiece = 1024;  // elements of a row whose positions are found without branches
  int64_t in_row[kPiece + 1];
  Shape at = mask.shape();
  std::fill(at.begin(), at.end(), 0);
  for (int64_t done = 0, piece = 0; dims > 0 && done < n; done += piece, chosen += piece) {
    piece = std::min(kPiece, mask.size(last) - at[last]);
    int64_t found = 0;
    for (int64_t i = 0; i < piece; ++i) {
      in_row[found] = at[last] + i;
      found += chosen[i];
    }
    for (int64_t i = 0; i < found; ++i) {
      for (int d = 0; d < last; ++d) *to++ = at[d];
      *to++ = in_row[i];
    }
    at[last] += piece;
    for (int d = last; d > 0 && at[d] == mask.size(d); at[d--] = 0) ++at[d - 1];
  }
  return on_device(places, mask.device());
}

}  // namespace ringgrad
