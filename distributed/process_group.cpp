#include "ringgrad/distributed/process_group.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {

Work ProcessGroup::all_reduce(const Tensor& x, ReduceOp op, const CollectiveOptions& options) {
  CHECK(x.defined(), "all_reduce: x is undefined");
  return submit({Operation::AllReduce, x, x, op, -1, options});
}

}  // namespace ringgrad
