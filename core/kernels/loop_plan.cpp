#include "ringgrad/core/kernels/loop_plan.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// Returns true if all operands have the same dense order of elements. Then one flat loop suffices,
// and no sorting is needed.
bool same_dense_order(std::initializer_list<const Tensor*> operands) {
  const Tensor& first = **operands.begin();
  for (const Tensor* t : operands) {
    ASSERT(t->shape() == first.shape() && t->is_channel_blocked() == first.is_channel_blocked());
    if (!first.is_channel_blocked() && !(t->strides() == first.strides())) return false;
  }
  return first.flat_numel() > 0;
}

}  // namespace

LoopPlan plan_loops(std::initializer_list<const Tensor*> operands) {
  LoopPlan plan;
  plan.operands = static_cast<int>(operands.size());
  const Tensor& first = **operands.begin();
  if (first.numel() == 0) return plan;
  if (same_dense_order(operands)) {
    plan.dims = 1;
    plan.numel = plan.sizes[0] = first.flat_numel();
    for (int i = 0; i < plan.operands; ++i) plan.strides[i][0] = 1;
    return plan;
  }
  plan.numel = first.numel();

  // Dimensions are visited outermost first. A dimension is merged into the one before if every
  // operand's stride there equals size times stride here, as in one longer dimension. Otherwise it
  // begins a new loop.
  const DimOrder order = memory_order(first.shape(), first.strides());
  for (int i = 0; i < order.count; ++i) {
    const int d = order.dim[i];
    bool merge = plan.dims > 0;
    int operand = 0;
    for (const Tensor* t : operands) {
      if (merge && plan.strides[operand][plan.dims - 1] != t->strides()[d] * first.shape()[d])
        merge = false;
      ++operand;
    }
    if (!merge) plan.sizes[plan.dims++] = 1;
    plan.sizes[plan.dims - 1] *= first.shape()[d];
    operand = 0;
    for (const Tensor* t : operands) plan.strides[operand++][plan.dims - 1] = t->strides()[d];
  }
  if (plan.dims == 0) plan.sizes[plan.dims++] = 1;  // one element
  return plan;
}

std::array<int64_t, kMaxOperands> LoopPlan::offsets(int64_t index) const {
  std::array<int64_t, kMaxOperands> result{};
  for (int d = dims - 1; d >= 0; --d) {
    const int64_t i = index % sizes[d];
    index /= sizes[d];
    for (int operand = 0; operand < operands; ++operand) result[operand] += i * strides[operand][d];
  }
  return result;
}

}  // namespace ringgrad
