#include "ringgrad/distributed/process_group.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {

void ProcessGroup::check_peer(Operation operation, int peer) const {
  CHECK_AS(IndexError, peer >= 0 && peer < size_, name(operation), ": rank ", peer,
           " does not exist in a group of ", size_);
}

Work ProcessGroup::all_reduce(const Tensor& x, ReduceOp op, const CollectiveOptions& options) {
  CHECK(x.defined(), "all_reduce: x is undefined");
  return submit({Operation::AllReduce, x, x, op, -1, options});
}

Work ProcessGroup::broadcast(const Tensor& x, Int root, const CollectiveOptions& options) {
  CHECK(x.defined(), "broadcast: x is undefined");
  check_peer(Operation::Broadcast, root);
  return submit({Operation::Broadcast, x, x, ReduceOp::Sum, root, options});
}

Work ProcessGroup::barrier(const CollectiveOptions& options) {
  return submit({Operation::Barrier, {}, {}, ReduceOp::Sum, -1, options});
}

}  // namespace ringgrad
