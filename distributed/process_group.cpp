#include "ringgrad/distributed/process_group.h"

#include "ringgrad/core/base/check.h"

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
  CHECK_AS(ShapeError, whole.numel() == part.numel() * parts, name(operation),
           ": a tensor of shape ", whole.shape(), " is not ", parts, " times one of shape ",
           part.shape(), ": there is one part for each rank");
}

}  // namespace

void ProcessGroup::check_peer(Operation operation, int peer) const {
  CHECK_AS(IndexError, peer >= 0 && peer < size_, name(operation), ": rank ", peer,
           " does not exist in a group of ", size_);
}

Work ProcessGroup::all_reduce(const Tensor& x, ReduceOp op, const CollectiveOptions& options) {
  check_tensor(Operation::AllReduce, "x", x);
  return submit({Operation::AllReduce, x, x, op, -1, options});
}

Work ProcessGroup::broadcast(const Tensor& x, Int root, const CollectiveOptions& options) {
  check_tensor(Operation::Broadcast, "x", x);
  check_peer(Operation::Broadcast, root);
  return submit({Operation::Broadcast, x, x, ReduceOp::Sum, root, options});
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

Work ProcessGroup::send(const Tensor& x, Int peer, const CollectiveOptions& options) {
  check_tensor(Operation::SendRecv, "x", x);
  check_peer(Operation::SendRecv, peer);
  CHECK(options.tag >= 0, "send: tag ", options.tag, " is negative");
  CHECK(peer != rank_, "send: rank ", rank_, " cannot send to itself");
  return submit({Operation::SendRecv, x, {}, ReduceOp::Sum, peer, options});
}

Work ProcessGroup::recv(const Tensor& x, Int peer, const CollectiveOptions& options) {
  check_tensor(Operation::SendRecv, "x", x);
  if (peer != kAnyRank) check_peer(Operation::SendRecv, peer);
  CHECK(options.tag >= 0, "recv: tag ", options.tag, " is negative");
  CHECK(peer != rank_ && size_ > 1, "recv: rank ", rank_, " cannot receive from itself");
  return submit({Operation::SendRecv, {}, x, ReduceOp::Sum, peer, options});
}

Work ProcessGroup::barrier(const CollectiveOptions& options) {
  return submit({Operation::Barrier, {}, {}, ReduceOp::Sum, -1, options});
}

}  // namespace ringgrad
