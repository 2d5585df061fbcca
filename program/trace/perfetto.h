// A step of all ranks for ui.perfetto.dev, or chrome://tracing.
#pragma once

#include <vector>

#include "ringgrad/program/trace/step_record.h"

namespace ringgrad::program {

// Chrome's trace-event JSON (the "Trace Event Format" document): a process for each rank, a thread
// for each list of its record, and arrows from each parameter's gradient to the buckets that it
// travels in. Times in microseconds from the earliest.
nlohmann::json perfetto_trace(const std::vector<StepRecord>& records);

}  // namespace ringgrad::program
