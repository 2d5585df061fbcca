// The options of `train`.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ringgrad/program/run/parallel_config.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {

// The first and the last step of those that are traced, from 1 on; 0: none.
struct TracedSteps {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const TracedSteps&) const = default;
};
// Reads "FIRST:LAST". Throws UsageError.
TracedSteps traced_steps_from(const std::string& words);

struct TrainOptions {
  // Its values count if their options are in `given`.
  Recipe recipe;
  // Such as "--lr".
  std::set<std::string> given;
  // Options that were given beside the recipe, such as "--out".
  std::set<std::string> named;
  ParallelConfig parallel_config;
  std::string data_dir;
  std::optional<uint64_t> seed;
  // The run directory; "" : runs/NNNN-data-model.
  std::string out;
  // A run directory to continue.
  std::string resume;
  // A run directory or file whose weights to begin with; "" : random ones.
  std::string init;
  // Data loader threads.
  int workers = 1;
  // For messages between ranks: auto (over a network), on, off; "" : RINGGRAD_CHECKSUMS.
  std::string checksums;
  // Stop after this number of steps of this call; 0: never.
  int64_t max_steps = 0;
  // The steps from checkpoint to checkpoint, besides every epoch; 0: none between epochs.
  int64_t save_every = 0;
  // The steps from line to line in metrics.jsonl, besides every epoch; 0: none between epochs.
  int64_t log_every = 0;
  // The same lines also as TensorBoard reads them.
  bool tensorboard = false;
  // With trace.json and timeline.svg.
  TracedSteps trace_steps;
  // Write report.html at the end.
  bool report = true;
  // A Preset's name; "": the recipe above.
  std::string preset;
};

// Trains with a recipe, networks and optimizers of its own: `train --preset NAME`.
struct Preset {
  const char* name;
  const char* help;
  int (*train)(const TrainOptions& options);
};
// A source adds its own before main.
inline std::vector<Preset>& presets() {
  static std::vector<Preset> all;
  return all;
}

}  // namespace ringgrad::program
