// The commands of the program, and what each can be told. Each prints its result, throws on
// failure, and returns an exit code (exit_code.h). Those that only measure are in bench/, and
// explain/ is one of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/lint/lint.h"
#include "ringgrad/program/run/division.h"
#include "ringgrad/program/run/recipe.h"
#include "ringgrad/program/trace/trace.h"

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
  // Its values count where their options are `given`.
  Recipe recipe;
  // Such as "--lr".
  std::set<std::string> given;
  // Options that were given beside the recipe, such as "--out".
  std::set<std::string> named;
  Division division;
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
  // Stop after so many steps of this call; 0: never.
  int64_t max_steps = 0;
  // Checkpoint every so many steps, besides every epoch; 0: never.
  int64_t save_every = 0;
  // A line in metrics.jsonl every so many steps, besides every epoch; 0: never.
  int64_t log_every = 0;
  // The same lines also as TensorBoard reads them.
  bool tensorboard = false;
  // With trace.json and timeline.svg.
  TracedSteps trace_steps;
  // Write report.html at the end.
  bool report = true;
  // speedrun: a recipe with a network and optimizers of its own; "": the recipe above.
  std::string preset;
};
int train(const TrainOptions& options);
// `train --preset speedrun`: as fast as we can to a known accuracy, on one process
// (models/speedrun.h).
int speedrun(const TrainOptions& options);

struct CheckpointOptions {
  std::string checkpoint;             // a run directory or a .safetensors file
  std::string model, data, data_dir;  // "" : as the checkpoint says
  std::string device = "cpu";
};

struct EvalOptions : CheckpointOptions {
  std::string provider = "auto";
  bool confusion = false;
  // Skips broken pictures of one's own.
  bool skip_broken = false;
  // The number of images with the highest loss, as a table and a picture …
  int worst = 0;
  // … in this file; "" : worst.png beside the weights.
  std::string out;
};
int eval(const EvalOptions& options);

int export_python(const CheckpointOptions& options);

struct PredictOptions : CheckpointOptions {
  std::string image;  // a picture's file, or an index into the test set
};
int predict(const PredictOptions& options);

struct DataOptions {
  std::string action;  // list, make, get, check
  std::string name;    // of a data set; or pictures of one's own, to check
  std::string data_dir;
};
int data(const DataOptions& options);

struct InspectOptions {
  std::string path;
  std::string npy;     // write this tensor …
  std::string output;  // … to this .npy file
};
int inspect(const InspectOptions& options);

struct GraphOptions {
  std::string model = "cnn";
  std::string data = "", data_dir = "";  // "": normal noise
  int64_t batch = 0;                     // 0: as train's
  bool values = false, dot = false;
};
int graph(const GraphOptions& options);

struct GanOptions {
  std::string data = "digits", data_dir;
  int64_t batch = 128;  // over all ranks
  int epochs = 5, ranks = 1;
  int shards = 0;  // virtual ranks (virtual_ranks.h); 0: each rank is one
  double lr = 2e-4;
  uint64_t seed = 1;
  std::string out, resume;  // as of train
  int64_t max_steps = 0;    // stop after so many steps of this call; 0: never
};
// What a run keeps for its whole life (run_of_ranks.h).
void each_setting(GanOptions& o, const auto& visit) {
  visit("data", o.data), visit("data_dir", o.data_dir), visit("batch", o.batch), visit("lr", o.lr);
  visit("seed", o.seed), visit("epochs", o.epochs), visit("shards", o.shards);
}
int gan(const GanOptions& options);

struct ReinforceOptions {
  int64_t episodes = 2000;  // at most, over all ranks
  double lr = 0.01;
  uint64_t seed = 1;
  int ranks = 1, shards = 0;  // shards: environments, whatever the ranks; 0: one for each rank
  std::string out, resume;    // as of train
  int64_t max_steps = 0;      // stop after so many episodes of this call; 0: never
};
void each_setting(ReinforceOptions& o, const auto& visit) {
  visit("lr", o.lr), visit("seed", o.seed), visit("episodes", o.episodes),
      visit("shards", o.shards);
}
int reinforce(const ReinforceOptions& options);

int doctor();

struct LaunchCommandOptions {
  SupervisorOptions job;
  std::string master_address;  // "" : loopback, on one machine
  double timeout_seconds = 0;  // 0: as RINGGRAD_TIMEOUT says
  std::string transport;       // shm, tcp; "" : as RINGGRAD_TRANSPORT says
};
int launch_program(const LaunchCommandOptions& options);

}  // namespace ringgrad::program
