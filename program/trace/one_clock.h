// Moves the records of all ranks to one clock.
#pragma once

#include <vector>

#include "ringgrad/distributed/process_group.h"
#include "ringgrad/program/trace/step_record.h"

namespace ringgrad::program {

// Collective. Returns all ranks' records on rank 0, by rank, in times of rank 0's clock; nothing on
// other ranks. Rank 0 asks each rank many times for its time; half of the quickest answer's delay
// bounds the error.
std::vector<StepRecord> on_one_clock(StepRecord own, ProcessGroup& group);

}  // namespace ringgrad::program
