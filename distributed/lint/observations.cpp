// Records what a program has done with the library, and writes it at the program's end for
// `ringgrad lint`, which finds the mistakes in it (program/lint/). RINGGRAD_LINT names the
// directory; every process that has computed something leaves a file there. Several mistakes are
// differences between ranks. `lint` sees them by comparing the files, so ranks exchange nothing
// while the program runs.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/transport/frame.h"

namespace ringgrad {
namespace {

constexpr size_t kMostPasses = 200;  // the last one also stands for all later ones
constexpr size_t kMostLrChanges = 1000;

// The time from one pass of a sampler to the next. The first one is what the program does before
// any pass.
struct SamplerInterval {
  int sampler = -1;
  int64_t samples = 0;
  int64_t repeated = 0;
  bool ascending = false;
  uint64_t order = 0;  // a hash
  int64_t backwards = 0;
  int64_t reads = 0;
  // operations that ran in these modes
  std::set<std::string> training;
  std::set<std::string> evaluation;
};

struct OptimizerRecord {
  int64_t steps = 0;
  size_t parameters = 0;
  std::vector<std::string> not_averaged;
  // The rates of the first parameter group, each with the step from which it holds.
  std::vector<std::pair<int64_t, double>> lr;
};

class Observations final : public ProgramObserver {
 public:
  explicit Observations(std::string directory) : directory_(std::move(directory)) {}

  void pass(const void* sampler, std::span<const int64_t> samples, int64_t repeated) override {
    const std::lock_guard lock(mutex_);
    if (intervals_.size() > kMostPasses) intervals_.pop_back();
    SamplerInterval& next = intervals_.emplace_back();
    next.sampler = static_cast<int>(samplers_.emplace(sampler, samplers_.size()).first->second);
    next.samples = static_cast<int64_t>(samples.size());
    next.repeated = repeated;
    next.ascending = std::is_sorted(samples.begin(), samples.end() - repeated);
    next.order = hash_of(samples.data(), samples.size_bytes());
  }
  void mode(const char* operation, bool training) override {
    const std::lock_guard lock(mutex_);
    (training ? now().training : now().evaluation).insert(operation);
  }
  void backward() override {
    const std::lock_guard lock(mutex_);
    ++now().backwards;
  }
  void read(const Tensor& value) override {
    const std::lock_guard lock(mutex_);
    ++now().reads;
    if (value.requires_grad()) ++losses_read_;
    if (!value.device().is_cpu()) ++device_reads_;
  }
  void step(const void* optimizer, int group, const NamedTensors& parameters, double lr) override {
    const std::lock_guard lock(mutex_);
    const size_t number = optimizer_numbers_.emplace(optimizer, optimizers_.size()).first->second;
    if (number == optimizers_.size()) optimizers_.emplace_back();
    OptimizerRecord& record = optimizers_[number];
    if (group == 0) {
      if ((record.lr.empty() || record.lr.back().second != lr) && record.lr.size() < kMostLrChanges)
        record.lr.emplace_back(record.steps, lr);
      ++record.steps;
    }
    if (record.steps > 1) return;
    record.parameters += parameters.size();
    for (const auto& [name, parameter] : parameters)
      if (not_stepped_.erase(identity(parameter)) == 0 && !averaged_.contains(identity(parameter)))
        record.not_averaged.push_back(name);
  }
  void averaged(const NamedTensors& parameters) override {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, parameter] : parameters) {
      averaged_.insert(identity(parameter));
      not_stepped_[identity(parameter)] = name;
    }
  }
  void batch(int64_t samples) override {
    const std::lock_guard lock(mutex_);
    largest_batch_ = std::max(largest_batch_, samples);
  }
  void collective() override {
    const std::lock_guard lock(mutex_);
    ++collectives_;
  }

  // Nothing, of a process that has only started the ranks.
  void write() {
    const std::lock_guard lock(mutex_);
    if (optimizers_.empty() && intervals_.size() == 1 && now().backwards == 0) return;
    try {
      const RankEnvironment here = rank_environment();
      const std::string file = directory_ + "/rank" + std::to_string(here.rank) + "-" +
                               std::to_string(getpid()) + ".json";
      Classic<std::ofstream> out(file);
      out << to_json(here).dump(1) << std::endl;
      if (!out) std::fprintf(stderr, "lint: cannot write %s\n", file.c_str());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "lint: %s\n", error.what());
    }
  }

 private:
  static const void* identity(const Tensor& parameter) { return parameter.autograd_meta().get(); }
  SamplerInterval& now() { return intervals_.back(); }

  nlohmann::json to_json(const RankEnvironment& here) const {
    nlohmann::json passes = nlohmann::json::array();
    nlohmann::json optimizers = nlohmann::json::array();
    for (const SamplerInterval& s : intervals_)
      passes.push_back({{"sampler", s.sampler},
                        {"samples", s.samples},
                        {"repeated", s.repeated},
                        {"ascending", s.ascending},
                        {"order", s.order},
                        {"backwards", s.backwards},
                        {"reads", s.reads},
                        {"training", s.training},
                        {"evaluation", s.evaluation}});
    for (const OptimizerRecord& record : optimizers_)
      optimizers.push_back({{"steps", record.steps},
                            {"parameters", record.parameters},
                            {"not_averaged", record.not_averaged},
                            {"lr", record.lr}});
    nlohmann::json never_stepped = nlohmann::json::array();
    for (const auto& [parameter, name] : not_stepped_) never_stepped.push_back(name);
    return {{"rank", here.rank},
            {"size", here.size},
            {"averaged", averaged_.size()},
            {"never_stepped", never_stepped},
            {"optimizers", optimizers},
            {"largest_batch", largest_batch_},
            {"losses_read", losses_read_},
            {"device_reads", device_reads_},
            {"collectives", collectives_},
            {"passes", passes}};
  }

  const std::string directory_;
  std::mutex mutex_;
  // In order of their first use, which is the same on other ranks.
  std::map<const void*, size_t> samplers_;
  std::map<const void*, size_t> optimizer_numbers_;
  std::vector<SamplerInterval> intervals_ = std::vector<SamplerInterval>(1);
  std::vector<OptimizerRecord> optimizers_;
  std::set<const void*> averaged_;
  std::map<const void*, std::string> not_stepped_;  // the ones not stepped
  int64_t largest_batch_ = 0;
  int64_t losses_read_ = 0;
  int64_t device_reads_ = 0;
  int64_t collectives_ = 0;
};

// Never destroyed: threads may outlive main().
const bool watching = [] {
  const std::string directory = variable("RINGGRAD_LINT");
  if (directory.empty()) return false;
  static auto* const observations = new Observations(directory);
  program_observer = observations;
  std::atexit([] { observations->write(); });
  return true;
}();

}  // namespace
}  // namespace ringgrad
