// Hand-over: after the loss of a rank, ranks may be one step apart, and a new rank has no state at
// all. The most advanced state counts, and goes to the others.
//
// Ranks are at most one step apart, because no rank ends a step without the gradients of all
// others. So the ranks that have taken the optimizer's step have the same state, bit for bit, and
// the step that the others have lost is computed already.
#pragma once

#include <cstdint>
#include <string>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// The state of training after so many steps. `tensors` has weights, buffers, and the state of the
// optimizer, a scaler or a generator, all on the CPU. `words` has the rest: the place in the epoch,
// sums of losses.
struct TrainingState {
  int64_t step = 0;
  NamedTensors tensors = {};
  std::string words = {};
};

// Collective: returns the state of the ranks that have done the most steps. On those ranks it is
// `own`; on the others it overwrites the tensors of `own`. All ranks give tensors of the same
// names, shapes and dtypes. Throws OutOfStepError, which names the ranks, if two ranks have done
// equally many steps, and their states differ.
TrainingState hand_over(ProcessGroup& group, TrainingState own);

}  // namespace ringgrad
