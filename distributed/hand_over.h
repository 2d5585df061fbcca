// Hand-over: after a loss ranks may stand one step apart, and a rank that joins stands nowhere. The
// most advanced state counts, and goes to those behind.
//
// Apart by one step at most: no rank ends a step without the gradients of all others. So those who
// have taken the optimizer's step have the same state, bit for bit, and what the others have lost
// of theirs is computed already.
#pragma once

#include <cstdint>
#include <string>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// What training is after so many steps: weights, buffers, and whatever the optimizer, a scaler or a
// generator keeps, as tensors on the CPU; what else there is (the place in the epoch, sums of
// losses) in words.
struct TrainingState {
  int64_t step = 0;
  NamedTensors tensors = {};
  std::string words = {};
};

// Collective: the state of the ranks that have done the most steps. On those it is `own`; on the
// others its tensors have been overwritten. All ranks give tensors of the same names, shapes and
// dtypes. Throws OutOfStepError, naming the ranks, where two ranks have done equally many, and
// their states differ.
TrainingState hand_over(ProcessGroup& group, TrainingState own);

}  // namespace ringgrad
