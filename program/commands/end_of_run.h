// The end of a training run: what it has measured of itself goes into its directory, and becomes a
// verdict and a report.
#pragma once

#include "ringgrad/program/commands/run_metrics.h"
#include "ringgrad/program/report/verdict.h"

namespace ringgrad::program {

// Writes summary.json, and unless --no-report report.html, and says the verdict. `last` is what the
// latest test found, if it was not interrupted. A disk that is full costs these files only: the run
// itself is saved.
Verdict end_run(const TrainOptions& options, const Data& data, const RunDirectory& run,
                RunMetrics& run_metrics, const Evaluation& last);

}  // namespace ringgrad::program
