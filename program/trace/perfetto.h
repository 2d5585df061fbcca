// A step of all ranks for ui.perfetto.dev, or chrome://tracing.
#pragma once

#include <vector>

#include "ringgrad/program/trace/step_record.h"

namespace ringgrad::program {

// Returns Chrome's trace-event JSON (the "Trace Event Format" document). Each rank is a process,
// and each list of its record a thread. Arrows lead from each parameter's gradient to the buckets
// in which it travels. Times are in microseconds from the earliest.
nlohmann::json perfetto_trace(const std::vector<StepRecord>& records);

}  // namespace ringgrad::program
