// `ringgrad trace`: when each bucket of gradients was ready, launched and complete, beside
// backward, in a step that all ranks take then and there.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/models/program/bench/bench.h"

namespace ringgrad::program {

struct TraceOptions : WorkloadOptions {
  // a small network, too, has several buckets then; each is shown.
  std::vector<double> bucket_caps = {0.25};
  int steps = 10;  // the last one is shown
  // Also write the step of all ranks to this file, for ui.perfetto.dev.
  std::string perfetto;
  std::string svg;  // also draw it to this file
};
int trace(const TraceOptions& options);

}  // namespace ringgrad::program
