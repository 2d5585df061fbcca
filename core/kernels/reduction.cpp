#include "ringgrad/core/kernels/reduction.h"

#include "ringgrad/core/error.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {
namespace {

constinit FindReduction in_use = nullptr;

}  // namespace

const char* name(ReduceOp op) {
  constexpr const char* names[] = {"sum",     "average", "min",    "max",
                                   "product", "bit_and", "bit_or", "bit_xor"};
  return names[static_cast<int>(op)];
}

bool register_reductions(FindReduction find) {
  in_use = find;
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
