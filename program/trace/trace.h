// `ringgrad trace`: when each bucket of gradients was ready, launched and complete, beside
// backward, in a step that all ranks take then and there.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/program/bench/bench.h"

namespace ringgrad::program {

struct TraceOptions : WorkloadOptions {
  // A small network, too, has several buckets then; each is shown.
  std::vector<double> bucket_caps = {0.25};
  // The last one is shown.
  int steps = 10;
  // Also write the step of all ranks to this file, for ui.perfetto.dev.
  std::string perfetto;
  // Also draw it to this file.
  std::string svg;
};
int trace(const TraceOptions& options);

}  // namespace ringgrad::program
