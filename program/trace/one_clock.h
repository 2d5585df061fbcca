// The records of all ranks on one clock.
#pragma once

#include <vector>

#include "ringgrad/distributed/process_group.h"
#include "ringgrad/program/trace/step_record.h"

namespace ringgrad::program {

// Collective. On rank 0: all ranks' records by rank, in times of rank 0's clock; elsewhere none.
// Rank 0 asks each rank for its time; half of the quickest of many answers' way bounds the error.
std::vector<StepRecord> on_one_clock(StepRecord own, ProcessGroup& group);

}  // namespace ringgrad::program
