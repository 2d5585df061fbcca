// The small things that ranks tell each other at the end of every step: how many samples each had, the buffers of the
// module, and a flag. One all-reduce, and before it one of the buffers on CUDA, where there are some.
//
// At the end, when all buckets are done: to know the number of samples first would cost a round trip before the first
// bucket (Note [Weights] in reducer.h). All travels as float64, in which counts are exact.
#pragma once

#include <vector>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

class StepExchange {
 public:
  // `buffers` (running statistics, counters) of the same shapes on all ranks; their handles are kept.
  StepExchange(ProcessGroup& group, std::vector<Tensor> buffers);

  struct Sum {
    double samples = 0;  // over the ranks
    bool flag = false;   // some rank's was true
  };
  // Collective. Each floating buffer becomes its mean over the ranks, weighted by their samples; integers and booleans,
  // of which there is no mean, become rank 0's (exact up to 2^53). Buffers stay as they are where there are no samples
  // at all. Moving averages are linear: the mean of the ranks' averages is the average that one rank would have kept of
  // the mean statistics.
  Sum run(double samples, bool flag, const CollectiveOptions& options);

 private:
  double weight_of(const Tensor& buffer, double samples) const;
  // f(buffer, its part of device_packed_) for each buffer on CUDA.
  template <class F>
  void visit_on_device(F&& f);

  ProcessGroup& group_;
  std::vector<Tensor> buffers_;
  Tensor packed_;         // float64 [2 + all elements of the buffers on the CPU]: samples, flag, samples · buffers
  Tensor device_packed_;  // float64 [all elements of the buffers on CUDA], or undefined: samples · buffers
};

}  // namespace ringgrad
