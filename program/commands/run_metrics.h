// RunMetrics: the metrics of one call of `train` on one rank, from its first step to its last. It
// writes them into the run's directory on the way.
#pragma once

#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "ringgrad/program/commands/logbook.h"
#include "ringgrad/program/commands/train_rank.h"
#include "ringgrad/program/run/machine.h"
#include "ringgrad/program/run/summary.h"
#include "ringgrad/program/trace/kernel_times.h"
#include "ringgrad/program/trace/step_recorder.h"
#include "ringgrad/program/train/training.h"

namespace ringgrad::program {

// A resumed run counts its steps from 0 again. keep_earlier() keeps what was measured before. Not
// thread-safe.
class RunMetrics {
 public:
  // All arguments must outlive this object. `run` is nullptr on ranks that write nothing, `group`
  // if there is one process. Throws UsageError if --trace-steps is impossible.
  RunMetrics(const TrainOptions& options, const RunConfig& config, const Data& data,
             Training& training, const RunDirectory* run, ProcessGroup* group);
  ~RunMetrics();

  void begin_epoch();
  // Collective behind the last step that is traced. `stops`: no step follows.
  void after_step(bool stops);
  // Collective: gathers the measurements of all ranks on the first one.
  void gather();

  // Writes the line of an epoch, with the times of its steps on each rank, and the current
  // summary.json. These are left if the run does not get to its end.
  void end_epoch(nlohmann::json line, const Evaluation& test);
  // Called if an exception ends the run in its first epoch. Writes this rank's own measurements
  // into summary.json.
  void save_so_far();
  // Returns the summary so far. `last` is the latest test, if it was not interrupted.
  RunSummary summarize(const Evaluation& last, bool ended);
  const nlohmann::json& epochs() const { return epochs_; }  // their lines

  int64_t steps = 0;
  int64_t images = 0;
  double train_seconds = 0;
  double test_seconds = 0;
  double save_seconds = 0;
  double images_per_second() const {
    return train_seconds > 0 ? static_cast<double>(images) / train_seconds : 0;
  }

 private:
  struct Measured {
    int64_t steps = 0;
    std::vector<RankSummary> ranks;
  };
  RankSummary own_measurements() const;
  double throttled() const;
  void look_at_next_step(bool stops);
  void keep_earlier(RunSummary& summary) const;
  void save_summary(const Evaluation& last);
  void write_trace();

  const TrainOptions& options_;
  const RunConfig& config_;
  const Data& data_;
  Training& training_;
  const RunDirectory* const run_;
  ProcessGroup* const group_;
  const Device device_;
  // between two looks
  const int64_t loss_steps_;
  const int64_t profile_steps_;

  LossSince loss_;
  std::vector<std::array<double, 2>> loss_curve_;
  ProcessorQuota quota_before_ = processor_quota();
  // The fields that do not change: machine, command, digest …; without a version: not filled in
  // yet.
  RunSummary fixed_;
  // The summary of the calls before this one.
  std::optional<RunSummary> earlier_;
  Measured before_;
  Measured now_;
  std::optional<Logbook> logbook_;
  nlohmann::json epochs_ = nlohmann::json::array();

  KernelTimes kernels_;
  // Records the step that is looked at, or those that are traced.
  std::unique_ptr<StepRecorder> recorder_;
};

}  // namespace ringgrad::program
