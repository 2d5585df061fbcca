// StepClock: measures where a rank's time goes, step by step. Each part of a step costs one look at
// the clock.
#pragma once

#include <chrono>
#include <vector>

#include "ringgrad/distributed/ddp/reducer_options.h"
#include "ringgrad/program/run/summary.h"

namespace ringgrad::program {

// Not thread-safe. On a GPU the times are the host's, which runs ahead of it.
class StepClock {
 public:
  StepClock();

  // The part under way ends, and another begins. RINGGRAD_SLOW may make it last.
  void enter(Part part);
  // Ends a step. What backward and `log` (nullptr: one rank) say of it counts, unless it is one of
  // the first steps, which tune kernels and plan buckets.
  void end_step(const ReductionLog* log);
  // Pauses until enter(): the time after the last step belongs to no step.
  void pause() {
    running_ = false;
    step_ = {};
  }

  int64_t steps() const { return static_cast<int64_t>(durations_.size()); }  // that were measured
  const std::vector<float>& durations() const { return durations_; }         // in seconds
  // Returns means over the measured steps; zeros if there are none. The caller must add memory and
  // bytes.
  RankSummary means() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Pressure {
    double starved_seconds = 0;    // counted for this thread
    double processor_seconds = 0;  // counted for this process
    // Counted for all programs, with the time that a hypervisor has taken.
    double machine_seconds = 0;
    int64_t page_faults = 0;
  };
  static Pressure pressure();
  void count_buckets(const ReductionLog& log);

  bool running_ = false;
  Part part_ = Part::Rest;
  Clock::time_point since_{};
  std::array<double, kParts.size()> step_{};
  std::array<double, kParts.size()> sums_{};
  int64_t skipped_ = 0;
  std::vector<float> durations_;
  std::vector<BucketSummary> buckets_;  // sums
  int64_t bucket_steps_ = 0;
  Pressure before_{};
  Clock::time_point measured_since_{};
};

}  // namespace ringgrad::program
