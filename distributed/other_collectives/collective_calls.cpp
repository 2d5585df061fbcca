// ProcessGroup's calls of these collectives.
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {
namespace {

void check_tensor(Operation operation, const char* what, const Tensor& x) {
  CHECK(x.defined(), name(operation), ": ", what, " is undefined");
}

void check_parts(Operation operation, const Tensor& whole, const Tensor& part, int parts) {
  check_tensor(operation, "the whole", whole);
  check_tensor(operation, "a part", part);
  CHECK_AS(DTypeError, whole.dtype() == part.dtype(), name(operation),
           ": input and output are of dtypes ", whole.dtype(), " and ", part.dtype(),
           ", expected the same");
  CHECK_AS(DeviceError, whole.device() == part.device(), name(operation), ": tensors on ",
           whole.device(), " and ", part.device(), ", expected the same");
  CHECK_AS(ShapeError, whole.numel() % parts == 0 && whole.numel() / parts == part.numel(),
           name(operation), ": a tensor of shape ", whole.shape(), " is not ", parts,
           " times one of shape ", part.shape(), ": there is one part for each rank");
}

// Ranks that call reduce_scatter() or all_gather() in its place mean another layout.
CollectiveOptions for_slices(CollectiveOptions options) {
  options.layout = ~options.layout;
  return options;
}

}  // namespace

void ProcessGroup::check_peer(Operation operation, int peer) const {
  CHECK_AS(IndexError, peer >= 0 && peer < size_, name(operation), ": rank ", peer,
           " does not exist in a group of ", size_);
}

Work ProcessGroup::broadcast(const Tensor& x, Int root, const CollectiveOptions& options) {
  CHECK(x.defined(), "broadcast: x is undefined");
  check_peer(Operation::Broadcast, root);
  return submit({Operation::Broadcast, x, x, ReduceOp::Sum, root, options});
}

Work ProcessGroup::barrier(const CollectiveOptions& options) {
  return submit({Operation::Barrier, {}, {}, ReduceOp::Sum, -1, options});
}

Work ProcessGroup::reduce(const Tensor& x, Int root, ReduceOp op,
                          const CollectiveOptions& options) {
  check_tensor(Operation::Reduce, "x", x);
  check_peer(Operation::Reduce, root);
  return submit({Operation::Reduce, x, root == rank_ ? x : Tensor(), op, root, options});
}

Work ProcessGroup::gather(const Tensor& y, const Tensor& x, Int root,
                          const CollectiveOptions& options) {
  check_tensor(Operation::Gather, "x", x);
  check_peer(Operation::Gather, root);
  if (root == rank_) check_parts(Operation::Gather, y, x, size_);
  return submit({Operation::Gather, x, root == rank_ ? y : Tensor(), ReduceOp::Sum, root, options});
}

Work ProcessGroup::scatter(const Tensor& y, const Tensor& x, Int root,
                           const CollectiveOptions& options) {
  check_tensor(Operation::Scatter, "y", y);
  check_peer(Operation::Scatter, root);
  if (root == rank_) check_parts(Operation::Scatter, x, y, size_);
  return submit(
      {Operation::Scatter, root == rank_ ? x : Tensor(), y, ReduceOp::Sum, root, options});
}

Work ProcessGroup::all_gather(const Tensor& y, const Tensor& x, const CollectiveOptions& options) {
  check_parts(Operation::AllGather, y, x, size_);
  return submit({Operation::AllGather, x, y, ReduceOp::Sum, -1, options});
}

Work ProcessGroup::all_to_all(const Tensor& y, const Tensor& x, const CollectiveOptions& options) {
  check_parts(Operation::AllToAll, x, y, 1);
  CHECK_AS(ShapeError, x.numel() % size_ == 0, "all_to_all: a tensor of shape ", x.shape(),
           " has no ", size_, " equal parts, one for each rank; pass lists of tensors");
  return submit({Operation::AllToAll, x, y, ReduceOp::Sum, -1, options});
}

Work ProcessGroup::reduce_scatter(const Tensor& y, const Tensor& x, ReduceOp op,
                                  const CollectiveOptions& options) {
  check_parts(Operation::ReduceScatter, x, y, size_);
  return submit({Operation::ReduceScatter, x, y, op, -1, options});
}

Work ProcessGroup::reduce_slices(const Tensor& x, ReduceOp op, const CollectiveOptions& options) {
  check_tensor(Operation::ReduceScatter, "x", x);
  return submit({Operation::ReduceScatter, x, x, op, -1, for_slices(options)});
}

Work ProcessGroup::gather_slices(const Tensor& x, const CollectiveOptions& options) {
  check_tensor(Operation::AllGather, "x", x);
  return submit({Operation::AllGather, x, x, ReduceOp::Sum, -1, for_slices(options)});
}

}  // namespace ringgrad
