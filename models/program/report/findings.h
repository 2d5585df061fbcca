// What verdicts are made of, for verdict.cpp and learning_verdict.cpp.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "ringgrad/models/program/report/verdict.h"

namespace ringgrad::program {

// A finding and how much of the time it costs, as a part of a step.
struct Finding {
  double cost;
  Verdict verdict;
};
using Findings = std::vector<Finding>;

// What is wrong with the learning.
void judge_learning(const RunRecord& run, Findings& found);

// The command that trains as the run was trained, with these options in the place of its own: with its recipe, seed,
// data, initial weights and division. Every word is quoted where a shell would take it apart.
std::string train_with(const RunRecord& run, const std::string& options);
// The commands that go on with a run, and that look at what it has learnt.
std::string resume_of(const RunRecord& run);
std::string eval_of(const RunRecord& run);

}  // namespace ringgrad::program
