// Where gradients lie that travel between ranks: beside each other, in memory that the ranks share
// where they can.
#pragma once

#include "ringgrad/distributed/ddp/bucket_plan.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// Reserves the averaging of these parameters' gradients for one wrapper while it lives. Throws
// Error, naming the parameter, if it is reserved already: a module was wrapped twice, or two
// wrapped modules share a parameter. Thread-safe.
class SoleAverager {
 public:
  SoleAverager(const char* who, const NamedTensors& parameters);
  ~SoleAverager();
  SoleAverager(const SoleAverager&) = delete;

 private:
  std::vector<std::shared_ptr<AutogradMeta>> parameters_;
};
// Returns true while some SoleAverager has this parameter. Thread-safe.
bool is_averaged(const Tensor& parameter);

// Collective. Moves values and gradients into arenas, one for each dtype, parameters beside each
// other in the order of `order`; all gradients become zeros. Returns the arenas in the order of
// dtypes, without `values`.
std::vector<ArenaRange> lay_out_gradients(ProcessGroup& group, const NamedTensors& parameters,
                                          const std::vector<int>& order);

}  // namespace ringgrad
