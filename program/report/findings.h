// The findings from which verdict.cpp and learning_verdict.cpp make a verdict.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "ringgrad/program/report/verdict.h"

namespace ringgrad::program {

// A finding, and the time that it costs, as a part of a step.
struct Finding {
  double cost;
  Verdict verdict;
};
using Findings = std::vector<Finding>;

// Finds problems with the learning.
void judge_learning(const RunRecord& run, Findings& found);

// Returns the command that trains as the run was trained, with its recipe, seed, data, initial
// weights and division, except for `options`, which replace its own. Every word is quoted if a
// shell would split it.
std::string train_with(const RunRecord& run, const std::string& options);
// Return the command that resumes a run, and the one that evaluates its model.
std::string resume_of(const RunRecord& run);
std::string eval_of(const RunRecord& run);

}  // namespace ringgrad::program
