// What verdicts are made of, for verdict.cpp and learning_verdict.cpp.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "ringgrad/core/base/environment.h"
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

inline std::string train_with(const RunRecord& run, const std::string& options) {
  const std::string init = run.config.value("init", "");
  return program_command(fmt::format("train {}{} {}", options_of(run.recipe, options),
                                     init.empty() ? "" : " --init " + shell_word(init), options));
}

}  // namespace ringgrad::program
