// Exchanges small numbers between the ranks at the end of every step: what each rank added to the
// step (contribution.h), and the module's buffers. This takes one all-reduce, and before it another
// one for the buffers on CUDA, if there are any.
//
// The exchange comes when all buckets are done, because learning the weights first would cost a
// round trip before the first bucket (Note [Weights]). Everything travels as float64, in which
// counts are exact and buffers keep their bits (buffer_numbers.h).
#pragma once

#include <vector>

#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

class StepExchange {
 public:
  // `buffers` (running statistics, counters) have the same shapes and dtypes on all ranks and lie
  // on devices that the group reaches. Their handles are kept.
  StepExchange(ProcessGroup& group, const std::vector<Tensor>& buffers);

  // Collective. Returns the sum over the ranks. Each floating buffer becomes its mean over the
  // ranks, weighted by their samples. Integers and booleans, which have no mean, become rank 0's,
  // and so do all buffers if no rank has samples. A buffer that is the same on all ranks keeps
  // every bit. Moving averages are linear: the mean of the ranks' averages is the average that one
  // rank would have kept of the mean statistics. Float64 buffers cost two more small messages, and
  // a broadcast each.
  StepNumbers run(const StepNumbers& own, const CollectiveOptions& options);

 private:
  struct Part {
    Tensor buffer;
    Tensor packed;  // float64 [n]: its place in the numbers that travel
    Tensor base;    // only for a float64 buffer; else undefined
  };
  void learn_bases(double samples, const CollectiveOptions& options);
  void unpack(const Part& part, double samples) const;

  ProcessGroup& group_;
  std::vector<Part> parts_;
  bool has_bases_ = false;
  Tensor packed_;         // [StepNumbers, and all buffers on the CPU]
  Tensor device_packed_;  // [all buffers on CUDA], or undefined
};

}  // namespace ringgrad
