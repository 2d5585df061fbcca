// Communication hooks: how the gradients of a bucket become their average over the ranks.
#pragma once

#include <functional>
#include <vector>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// A bucket whose gradients are complete on this rank.
struct GradBucket {
  ProcessGroup& group;
  // [n], a range of the gradient arena: param.grad are views of it.
  Tensor flat;
  // The positions of its parameters in the module's list.
  const std::vector<int>& parameters;
  // Buckets are numbered in the order in which they are launched.
  int index;
  bool is_last;
  // Step, bucket and names, for messages, and for ranks to compare.
  CollectiveOptions options;
  // The hook's own memory. It is kept with the bucket from step to step, and is part of
  // comm_hook_state().
  Tensor& scratch;
  // Throws if `sent` is not finite; average() calls it.
  std::function<void(const Tensor& sent)> check = {};

  // Replaces x by its average over the ranks. This is a collective of the group with this bucket's
  // options; a hook that makes several must make them in the same order on all ranks. Throws Error
  // if gradients must be finite and x is not.
  Work average(const Tensor& x) const {
    if (check && !x.is_same(flat)) check(x);
    return group.all_reduce(x, ReduceOp::Average, options);
  }

  // If `scratch` is undefined, it becomes zeros [items], in memory that the ranks share if they
  // can; that is collective. Returns true if it was undefined. Throws Error if it belongs to
  // another hook.
  bool begin_scratch(int64_t items, DType dtype) const;
};

// A hook is called once per bucket and step, in the order of the buckets, on the thread that runs
// backward. Once the returned Work has been waited for, bucket.flat must hold the average over the
// ranks, or whatever the hook makes of the gradients, the same on all ranks. An undefined hook
// means bucket.average(bucket.flat).
using CommHook = std::function<Work(const GradBucket& bucket)>;

// Halves the bytes: gradients travel as 16-bit floats, are summed in float32 and rounded once.
// bfloat16 keeps the range of float32 and 8 bits of precision. float16 has 11 bits, and numbers
// beyond 65504 become infinite. Buckets that have 16 bits already travel as they are.
CommHook bf16_compress_hook();
CommHook fp16_compress_hook();

// Returns Work that runs `after` once `work` is done, when it is waited for the first time. The
// waiting thread runs it. That thread owns the gradients, so `after` may write them.
Work then(Work work, std::function<void()> after);

}  // namespace ringgrad
