#include "ringgrad/autograd/ops.h"

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// int64, on x's device, and within [0, size) where the host can look without waiting for a device.
void check_index(const char* operation, const Tensor& index, int64_t size) {
  check_defined(operation, index);
  CHECK_AS(DTypeError, index.dtype() == DType::Int64, operation, ": the index has dtype ", index.dtype(),
           ", expected int64; convert with to(index, DType::Int64)");
  if (!index.device().is_cpu()) return;
  const Tensor values = as_contiguous(index);
  const int64_t* value = values.data<int64_t>();
  for (int64_t i = 0; i < values.numel(); ++i)
    CHECK_AS(IndexError, value[i] >= 0 && value[i] < size, operation, ": element ", i, " of the index is ", value[i],
             ", expected 0 to ", size - 1);
}

void check_devices(const char* operation, const Tensor& x, const Tensor& index) {
  check_defined(operation, x);
  check_defined(operation, index);
  CHECK_AS(DeviceError, x.device() == index.device(), operation, ": the tensor is on ", x.device(), ", the index on ",
           index.device(), ", expected one device; move with to(x, device)");
}

}  // namespace

Tensor index_select(const Tensor& x_, int dim, const Tensor& index_) {
  OpScope scope("index_select");
  check_devices("index_select", x_, index_);
  dim = normalize_dim("index_select", dim, x_.dim());
  check_dim("index_select", "the index", index_, 1);
  check_index("index_select", index_, x_.shape()[dim]);
  const Tensor x = strided_contiguous(x_), index = strided_contiguous(index_);
  Shape shape = x.shape();
  shape[dim] = index.size(0);
  Tensor y = empty(shape, x.options());
  kernels::index_select(around_dim(y, dim), around_dim(x, dim), index);
  return differentiable("index_select", {x}, y,
                        [from = x.shape(), dim, index = save(index)](const Tensor& dy) -> Gradients {
                          Tensor dx = zeros(from, {dy.dtype(), dy.device()});
                          kernels::index_add(around_dim(dx, dim), around_dim(strided_contiguous(dy), dim), index.get());
                          return {dx};
                        });
}

Tensor gather(const Tensor& x_, int dim, const Tensor& index_) {
  OpScope scope("gather");
  check_devices("gather", x_, index_);
  dim = normalize_dim("gather", dim, x_.dim());
  bool fits = index_.dim() == x_.dim();
  for (int d = 0; fits && d < x_.dim(); ++d) fits = d == dim || index_.shape()[d] == x_.shape()[d];
  CHECK_AS(ShapeError, fits, "gather: the tensor has shape ", x_.shape(), ", the index ", index_.shape(),
           ", expected equal sizes in all dimensions but ", dim);
  check_index("gather", index_, x_.shape()[dim]);
  const Tensor x = strided_contiguous(x_), index = strided_contiguous(index_);
  Tensor y = empty(index.shape(), x.options());
  kernels::gather(around_dim(y, dim), around_dim(x, dim), around_dim(index, dim));
  return differentiable("gather", {x}, y, [from = x.shape(), dim, index = save(index)](const Tensor& dy) -> Gradients {
    Tensor dx = zeros(from, {dy.dtype(), dy.device()});
    kernels::scatter_add(around_dim(dx, dim), around_dim(strided_contiguous(dy), dim), around_dim(index.get(), dim));
    return {dx};
  });
}

Tensor one_hot(const Tensor& index_, int64_t num_classes, DType dtype) {
  OpScope scope("one_hot");
  CHECK(num_classes >= 1, "one_hot: the number of classes is ", num_classes, ", expected at least 1");
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

}  // namespace ringgrad
