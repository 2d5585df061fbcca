// A step of all ranks as a picture: a lane for what each rank computes, and one for its buckets.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/program/trace/step_record.h"

namespace ringgrad::program {

// An SVG that refers to nothing outside, in the colours of a light or a dark page; what things are
// is said when the pointer rests on them.
std::string timeline_svg(const std::string& title, const std::vector<StepRecord>& records);

}  // namespace ringgrad::program
