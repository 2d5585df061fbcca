// Draws a step of all ranks: a lane for each rank's computation, and one for its buckets.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/program/trace/step_record.h"

namespace ringgrad::program {

// Returns an SVG without outside references, in the colours of a light or a dark page. It names
// things when the pointer rests on them.
std::string timeline_svg(const std::string& title, const std::vector<StepRecord>& records);

}  // namespace ringgrad::program
