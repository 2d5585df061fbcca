// summary.json: what a run has measured on all its ranks. The verdict at its end, `report`,
// `compare` and `runs` use this file, metrics.jsonl and config.json.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

// The parts of a rank's step. Waiting is the time from the rank's last gradient to the averaged
// ones, which backward did not hide. Rest is the time between two steps.
enum class Part { Data, Forward, Backward, Waiting, Optimizer, Rest };
inline constexpr std::array<const char*, 6> kParts = {"data",    "forward",   "backward",
                                                      "waiting", "optimizer", "rest"};

// Means over the measured steps, in seconds since the rank's backward began, from ReductionLog.
struct BucketSummary {
  std::string parameters;
  int64_t bytes = 0;
  double ready = 0;
  double launched = 0;
  double completed = 0;
};

struct RankSummary {
  // The seconds of each Part of a step, as means over the measured steps.
  std::array<double, kParts.size()> seconds{};
  // The part of these in which it could have run, and had no core, as others had them or a quota
  // was spent.
  double starved = 0;
  // The number of cores that all its threads used in a step.
  double processor = 0;
  // The number of cores that all programs of the machine used meanwhile.
  double machine = 0;
  // The number of pages that came from the disk in a step.
  double page_faults = 0;
  // At most.
  int64_t tensor_bytes = 0;
  int64_t resident_bytes = 0;
  // The bytes of gradients in a step.
  int64_t sent_bytes = 0;
  // DataParallel: the peak of the bytes in tensors, on each of its devices.
  std::vector<int64_t> device_bytes;
  std::vector<BucketSummary> buckets;

  double part(Part p) const { return seconds[static_cast<size_t>(p)]; }
  double step() const;     // all parts
  double compute() const;  // all but data and waiting
};

// The times of the first rank's measured steps.
struct StepHistogram {
  // In seconds: the ends of the bins. Longer steps are in the last bin.
  double low = 0;
  double high = 0;
  std::vector<int64_t> bins;
  double median = 0;
  double p95 = 0;
};

// The time of a kernel in a step of the first rank: the median of the profiled steps.
struct KernelTime {
  // "forward", "conv1", "conv2d"; without a layer: after the last one, such as the loss.
  std::string phase;
  std::string layer;
  std::string kernel;
  double seconds = 0;  // the sum over its calls in that phase
};

struct ImageResult {  // the result for a test image
  int64_t index = 0;
  int64_t label = 0;
  int64_t answer = 0;
  double loss = 0;
  std::string file = "";  // the file of an own picture, below its folder
};

struct RunSummary {
  // False: as of the last epoch, or of a failure, which not all ranks have lived to see.
  bool ended = true;
  // Steps that were measured: all of this call but the first ones, which tune.
  int64_t steps = 0;
  int64_t steps_per_epoch = 0;
  // For this call.
  double train_seconds = 0;
  double test_seconds = 0;
  double save_seconds = 0;
  double images_per_second = 0;
  // The number of the machine's cores, and of a rank's threads and workers.
  int cores = 0;
  int threads = 0;
  int workers = 0;
  // The part of the scheduler's periods in which a quota was spent.
  double throttled = 0;
  // Bytes that this machine has, or its control group may take.
  int64_t memory_limit = 0;
  std::vector<RankSummary> ranks;
  StepHistogram histogram;
  std::vector<KernelTime> kernels;
  // The number of epochs done, and the mean loss since the point before.
  std::vector<std::array<double, 2>> loss_curve;
  std::vector<std::string> classes;
  // As Evaluation has it.
  std::vector<int64_t> confusion;
  // Test images, the worst first.
  std::vector<ImageResult> worst;
  std::string command;
  std::string machine;
  std::string version;
  std::string commit;
  std::string data_digest;

  // Returns false if the ranks' host saw nothing of their waiting for each other, which is in their
  // other parts then: it replayed captured steps, or steps of shards.
  bool sees_waiting() const { return ranks.size() < 2 || !ranks.front().buckets.empty(); }
};

nlohmann::json to_json(const RunSummary& summary);
// Throws nlohmann's exceptions if a field is missing or of another type, DataError if a number is
// impossible.
RunSummary summary_from_json(const nlohmann::json& json);
nlohmann::json to_json(const RankSummary& rank);
RankSummary rank_from_json(const nlohmann::json& json);

// The file in a run's directory. Atomic. Throws IoError.
void write_summary(const std::filesystem::path& run, const RunSummary& summary);

StepHistogram histogram_of(std::vector<float> seconds);

}  // namespace ringgrad::program
