// The small things that ranks tell each other at the end of every step: what each brought to it (contribution.h), and
// the buffers of the module. One all-reduce, and before it one of the buffers on CUDA, where there are some.
//
// At the end, when all buckets are done: to know the weights first would cost a round trip before the first bucket
// (Note [Weights]). All travels as float64, in which counts are exact.
#pragma once

#include <vector>

#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

class StepExchange {
 public:
  // `buffers` (running statistics, counters) of the same shapes on all ranks; their handles are kept.
  StepExchange(ProcessGroup& group, std::vector<Tensor> buffers);

  // Collective. Returns the sum over the ranks. Each floating buffer becomes its mean over the ranks, weighted by their
  // samples; integers and booleans, of which there is no mean, become rank 0's (exact up to 2^53), and so do all
  // buffers where there are no samples at all. Moving averages are linear: the mean of the ranks' averages is the
  // average that one rank would have kept of the mean statistics.
  StepNumbers run(const StepNumbers& own, const CollectiveOptions& options);

 private:
  double weight_of(const Tensor& buffer, double samples) const;
  // f(buffer, its part of device_packed_) for each buffer on CUDA.
  template <class F>
  void visit_on_device(F&& f);

  ProcessGroup& group_;
  std::vector<Tensor> buffers_;
  Tensor packed_;         // float64 [StepNumbers, and all elements of the buffers on the CPU]: samples · buffers
  Tensor device_packed_;  // float64 [all elements of the buffers on CUDA], or undefined: samples · buffers
};

}  // namespace ringgrad
