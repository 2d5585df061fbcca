#include "ringgrad/core/kernels/reduction.h"

#include "ringgrad/core/error.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {
namespace {

constinit FindReduction in_use = nullptr;
constinit bool serves_ranks = false;

}  // namespace

const char* name(ReduceOp op) {
  constexpr const char* names[] = {"sum",     "average", "min",    "max",
                                   "product", "bit_and", "bit_or", "bit_xor"};
  return names[static_cast<int>(op)];
}

bool register_reductions(FindReduction find, bool of_ranks) {
  if (of_ranks || !serves_ranks) in_use = find;
  serves_ranks = serves_ranks || of_ranks;
  return true;
}

ReduceOp on_bool(ReduceOp op) {
  if (op == ReduceOp::Sum) return ReduceOp::Max;
  return op == ReduceOp::Product ? ReduceOp::Min : op;
}

const ReduceFunctions& reduction(const char* operation, DType dtype, ReduceOp op) {
  if (in_use == nullptr) check_cpu_kernels();  // throws the reason why there are no kernels
  const ReduceFunctions* found = in_use(dtype, op);
  if (found == nullptr)
    throw_unsupported_dtype(
        str(operation, " (", name(op), ")").c_str(), dtype,
        op == ReduceOp::Average ? "a floating dtype or int64" : "integers or bool");
  return *found;
}

}  // namespace ringgrad
