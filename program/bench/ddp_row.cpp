#include "ringgrad/program/bench/ddp_row.h"

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/planner/link_model.h"
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/bench/ddp_workload.h"

namespace ringgrad::program {
namespace {

constexpr double kBlockSeconds = 0.25;
constexpr int kSamples = 15;  // per size

// Returns the peaks of this process's devices, then those of the other ranks.
std::vector<int64_t> peak_memory(const Workload& work, bool shared_gradients, ProcessGroup& group) {
  std::vector<int64_t> own;
  for (const Device device : work.devices())
    own.push_back(memory_stats(device).peak_bytes +
                  (shared_gradients && device.is_cpu() ? work.gradient_bytes() : 0));
  return all_gather_values(group, own);
}

// DDP: each of n ranks reads (n - 1) / n of the gradients of others and writes as much to them. DP:
// parameters, buffers and inputs go out through the first device, outputs and gradients come in,
// gradients of outputs go out.
void count_bytes(const BenchDdpOptions& options, const Workload& work, nlohmann::json& row) {
  const int64_t n = options.ranks;
  const int64_t gradients = work.gradient_bytes();
  int64_t moved = 0;
  int64_t busiest = 0;
  if (options.row.starts_with("ddp")) {
    moved = 2 * (n - 1) * gradients;
    busiest = 2 * moved / n;  // each byte that leaves a rank arrives at another
  } else if (options.row == "dp") {
    moved = (n - 1) * (2 * gradients + work.buffer_bytes());
    moved += (work.input_bytes() + 2 * work.output_bytes()) * (n - 1) / n;
    busiest = moved;
  }
  row["moved_bytes"] = moved;
  row["busiest_bytes"] = busiest;
}

// Collects the reducer's logs of the steps, and combines them at the end.
class Logs {
 public:
  void add(const ReductionLog& log) {
    exposed_.push_back(log.exposed());
    computed_.push_back(log.computed);
    if (log.buckets.size() != buckets_.size()) buckets_.assign(log.buckets.size(), {});
    for (size_t b = 0; b < buckets_.size(); ++b) {
      buckets_[b].ready.push_back(log.buckets[b].ready);
      buckets_[b].launched.push_back(log.buckets[b].launched);
      buckets_[b].completed.push_back(log.buckets[b].completed);
    }
  }

  // Collective.
  void put_into(nlohmann::json& row, ProcessGroup& group, const ReductionLog& last) const {
    const std::vector<double> all = all_gather_values(group, exposed_);
    std::vector<double> means;
    std::vector<double> least;
    for (size_t step = 0; step < exposed_.size(); ++step) {
      double sum = 0;
      double smallest = all[step];
      for (int r = 0; r < group.size(); ++r) {
        const double exposed = all[static_cast<size_t>(r) * exposed_.size() + step];
        sum += exposed;
        smallest = std::min(smallest, exposed);
      }
      means.push_back(sum / group.size());
      least.push_back(smallest);
    }
    row["exposed_ms"] = median(means) * 1e3;
    row["transfer_ms"] = median(least) * 1e3;
    row["computed_ms"] = median(computed_) * 1e3;
    row["buckets"] = nlohmann::json::array();
    for (size_t b = 0; b < buckets_.size(); ++b)
      row["buckets"].push_back({{"parameters", *last.buckets[b].parameters},
                                {"bytes", last.buckets[b].bytes},
                                {"ready_ms", median(buckets_[b].ready) * 1e3},
                                {"launched_ms", median(buckets_[b].launched) * 1e3},
                                {"completed_ms", median(buckets_[b].completed) * 1e3}});
  }

 private:
  struct Times {
    std::vector<double> ready;
    std::vector<double> launched;
    std::vector<double> completed;
  };
  std::vector<double> exposed_;
  std::vector<double> computed_;
  std::vector<Times> buckets_;
};

// Times every copy from one device to another that this thread makes: DataParallel makes all of
// them in the first one's.
class Copies : private KernelObserver {
 public:
  Copies() { set_current(this); }
  ~Copies() override { set_current(nullptr); }
  int count = 0;
  double seconds = 0;

 private:
  void call(const ObservedCall& call, const std::function<void()>& run) override {
    const auto start = std::chrono::steady_clock::now();
    run();
    if (call.arguments.size() < 2) return;
    const Tensor* to = call.tensor(0);
    const Tensor* from = call.tensor(1);
    if (!to || !from || to->device() == from->device()) return;
    ++count;
    seconds += seconds_since(start);
  }
};

nlohmann::json medians_by_size(const std::vector<LinkSample>& samples) {
  std::map<double, std::vector<double>> by_size;
  for (const LinkSample& sample : samples) by_size[sample.bytes].push_back(sample.seconds);
  nlohmann::json points = nlohmann::json::array();
  for (const auto& [bytes, seconds] : by_size) points.push_back({bytes, median(seconds)});
  return points;
}

// From 4 KiB to the size of all gradients.
std::vector<int64_t> sizes_up_to(int64_t gradients) {
  std::vector<int64_t> sizes;
  for (int64_t bytes = 4 << 10; bytes < std::max<int64_t>(gradients, 1 << 20); bytes *= 8)
    sizes.push_back(bytes);
  sizes.push_back(std::max<int64_t>(gradients, 1 << 20));
  return sizes;
}

void measure_copies(Workload& work, nlohmann::json& row) {
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const Copies copies;
    work.step([](const char*) {});
    seconds.push_back(copies.seconds);
    row["copies"] = copies.count;
  }
  row["copies_ms"] = median(seconds) * 1e3;
  std::vector<LinkSample> samples;
  for (const int64_t bytes : sizes_up_to(work.gradient_bytes())) {
    const Tensor from = zeros({bytes / 4}, {.device = work.devices().front()});
    for (int i = 0; i < kSamples; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const Tensor to = empty(from.shape(), {.device = work.devices().back()});
      copy_(to, from);
      if (i > 1) samples.push_back({static_cast<double>(bytes), seconds_since(start)});
    }
  }
  row["samples"] = medians_by_size(samples);
}

}  // namespace

nlohmann::json measure_row(const BenchDdpOptions& options, ProcessGroup& group,
                           const std::filesystem::path& parameters_file) {
  Workload work(options, options.row, group);
  work.block(kComparedSteps / 2);
  const double estimate = work.block(kComparedSteps / 2);
  if (work.ddp()) work.ddp()->check_identical();
  if (group.is_main_process() && !parameters_file.empty())
    nn::save_safetensors(parameters_file, work.parameters());
  for (const Device device : work.devices()) reset_peak_memory(device);
  const auto at_least = [](double n, int64_t least) {
    return std::max(least, static_cast<int64_t>(n));
  };
  const int64_t own_steps = at_least(kBlockSeconds / estimate, 1);
  const double pair_seconds = estimate * static_cast<double>(own_steps) * (work.ddp() ? 2 : 1);
  const Tensor agreed = tensor<int64_t>({own_steps, at_least(options.seconds / pair_seconds, 3)});
  group.broadcast(agreed, 0).wait();
  const int64_t steps = agreed.data<int64_t>()[0];
  const int64_t pairs = agreed.data<int64_t>()[1];

  std::vector<double> with;
  std::vector<double> without;
  std::vector<double> kept;
  Logs logs;
  const auto note = [&] {
    if (work.ddp()) logs.add(work.ddp()->log());
  };
  for (int64_t pair = 0; pair < pairs; ++pair) {
    with.push_back(work.block(steps, note));
    if (!work.ddp()) continue;
    without.push_back(work.block_alone(steps));
    kept.push_back(without.back() / with.back());
  }
  const double step = median(with);
  nlohmann::json row = {
      {"row", options.row},
      {"ranks", options.row == "none" ? 1 : options.ranks},
      {"images_per_second", static_cast<double>(options.batch) / step},
      {"step_ms", step * 1e3},
      {"step_quartiles_ms", {quantile(with, 0.25) * 1e3, quantile(with, 0.75) * 1e3}},
      {"steps", static_cast<int64_t>(with.size()) * steps},
      {"memory_bytes", peak_memory(work, work.ddp() != nullptr, group)}};
  count_bytes(options, work, row);
  const bool on_cpu = work.devices().front().is_cpu();
  if (options.row == "dp" && on_cpu) measure_copies(work, row);
  if (!work.ddp()) return row;
  row["no_communication_ms"] = median(without) * 1e3;
  row["kept_of_no_communication"] = median(kept);
  row["kept_quartiles"] = {quantile(kept, 0.25), quantile(kept, 0.75)};
  row["gradient_bytes"] = work.gradient_bytes();
  row["buffer_bytes"] = work.buffer_bytes();
  row["samples"] =
      medians_by_size(sample_all_reduce(group, sizes_up_to(work.gradient_bytes()), kSamples));
  if (on_cpu) logs.put_into(row, group, work.ddp()->log());
  return row;
}

}  // namespace ringgrad::program
