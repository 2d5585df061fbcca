#include "ringgrad/program/train/step_clock.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kTuningSteps = 3;

// RINGGRAD_SLOW=PART:MILLISECONDS, or RANK:PART:MILLISECONDS, slows a run, to test what finds it.
double planted_seconds(Part part) {
  static const std::string planted = variable("RINGGRAD_SLOW");
  if (planted.empty()) return 0;
  const std::string name = kParts[static_cast<size_t>(part)];
  for (const std::string& before : {name + ":", variable("RANK", "0") + ":" + name + ":"})
    if (planted.starts_with(before))
      return parse_number<double>(planted.substr(before.size())).value_or(0) / 1e3;
  return 0;
}

}  // namespace

StepClock::StepClock() { durations_.reserve(4096); }

// The second number of schedstat is how long the thread has stood in the queue of a core.
StepClock::Pressure StepClock::pressure() {
  Pressure now;
  double ran = 0;
  double queued = 0;
  if (std::ifstream("/proc/thread-self/schedstat") >> ran >> queued)
    now.starved_seconds = queued / 1e9;
  rusage used{};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    now.processor_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
    now.page_faults = used.ru_majflt;
  }
  // "cpu  user nice system idle iowait irq softirq steal …", in ticks.
  std::ifstream machine("/proc/stat");
  machine.ignore(5);
  double ticks = 0;
  double all = 0;
  for (int i = 0; i < 8 && machine >> ticks; ++i)
    if (i != 3 && i != 4) all += ticks;
  now.machine_seconds = all / static_cast<double>(sysconf(_SC_CLK_TCK));
  return now;
}

void StepClock::enter(Part part) {
  const auto now = Clock::now();
  if (running_) step_[static_cast<size_t>(part_)] += seconds_between(since_, now);
  running_ = true;
  part_ = part;
  since_ = now;
  if (const double planted = planted_seconds(part); planted > 0)
    std::this_thread::sleep_for(std::chrono::duration<double>(planted));
}

void StepClock::end_step(const ReductionLog* log) {
  enter(Part::Rest);
  if (log) {
    step_[static_cast<size_t>(Part::Backward)] -= log->exposed();
    step_[static_cast<size_t>(Part::Waiting)] += log->exposed();
  }
  if (skipped_ < kTuningSteps) {
    if (++skipped_ == kTuningSteps) {
      before_ = pressure();
      measured_since_ = since_;
    }
  } else {
    double duration = 0;
    for (size_t i = 0; i < step_.size(); ++i) {
      sums_[i] += step_[i];
      duration += step_[i];
    }
    durations_.push_back(static_cast<float>(duration));
    if (log) count_buckets(*log);
  }
  step_ = {};
}

// Buckets that were planned anew are counted anew.
void StepClock::count_buckets(const ReductionLog& log) {
  const bool as_before = buckets_.size() == log.buckets.size() && !buckets_.empty() &&
                         buckets_.front().parameters == *log.buckets.front().parameters;
  if (!as_before) {
    buckets_.clear();
    bucket_steps_ = 0;
    for (const BucketLog& bucket : log.buckets)
      buckets_.push_back({*bucket.parameters, bucket.bytes});
  }
  ++bucket_steps_;
  for (size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].ready += log.buckets[b].ready;
    buckets_[b].launched += log.buckets[b].launched;
    buckets_[b].completed += log.buckets[b].completed;
  }
}

RankSummary StepClock::means() const {
  RankSummary rank;
  if (durations_.empty()) return rank;
  const auto steps = static_cast<double>(durations_.size());
  for (size_t i = 0; i < sums_.size(); ++i) rank.seconds[i] = std::max(0.0, sums_[i] / steps);
  const Pressure now = pressure();
  // It includes tests and checkpoints, because it is a part of the whole time.
  const double passed = seconds_since(measured_since_);
  const double per_step = rank.step() / std::max(passed, 1e-9);
  rank.starved = std::max(0.0, now.starved_seconds - before_.starved_seconds) * per_step;
  rank.processor = std::max(0.0, now.processor_seconds - before_.processor_seconds) * per_step;
  rank.machine = std::max(0.0, now.machine_seconds - before_.machine_seconds) * per_step;
  rank.page_faults = static_cast<double>(now.page_faults - before_.page_faults) / steps;
  rank.buckets = buckets_;
  for (BucketSummary& bucket : rank.buckets)
    for (double* sum : {&bucket.ready, &bucket.launched, &bucket.completed})
      *sum /= static_cast<double>(bucket_steps_);
  return rank;
}

}  // namespace ringgrad::program
