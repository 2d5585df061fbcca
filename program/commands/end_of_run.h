// The end of a training run: its measurements go into its directory, and become a verdict and a
// report.
#pragma once

#include "ringgrad/program/commands/run_metrics.h"
#include "ringgrad/program/report/verdict.h"

namespace ringgrad::program {

// Writes summary.json, and report.html unless --no-report, and prints the verdict. `last` is the
// latest test, if it was not interrupted. A full disk costs these files only: the run itself is
// saved.
Verdict end_run(const TrainOptions& options, const Data& data, const RunDirectory& run,
                RunMetrics& run_metrics, const Evaluation& last);

// Returns the error's words, and the command that says what fits in the memory that there was.
std::string what_fits(const OutOfMemoryError& error, const RunConfig& config, int ranks);

}  // namespace ringgrad::program
