// `ringgrad bench train`: the cost of a training step on synthetic data, without reading,
// augmentation or schedule. bench/peers/train_pytorch.py is its counterpart, with the same models,
// batches and optimizer.
#include <sys/resource.h>
#include <time.h>

#include <array>
#include <chrono>
#include <fstream>
#include <numeric>
#include <sstream>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/captured_step.h"
#include "ringgrad/core/device/cpu_division.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/core/kernels/isa.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/bench/kernel_table.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {
namespace {

struct BenchTrainOptions {
  std::string model = "cnn";
  std::string dtype = "fp32";
  std::string conv = "auto";
  std::string provider = "auto";
  std::string device = "cpu";
  std::string float32_matmul_precision = "highest";
  int64_t batch = 100;
  int threads = 0;  // 0: one per core
  int steps = 20;
  int warm_up = 3;
  bool profile = false;
};

// Milliseconds of the phases of one step: zeroing the gradients, forward pass and loss, backward
// pass, optimizer.
constexpr std::array<const char*, 4> kPhases = {"zero_grad", "forward", "backward", "optimizer"};
using StepTimes = std::array<double, kPhases.size()>;

// A network, and a batch of noise that it learns by heart.
class TrainWorkload {
 public:
  explicit TrainWorkload(const BenchTrainOptions& options)
      : device_(options.device), dtype_(dtype_named(options.dtype)) {
    manual_seed(0);
    const models::ModelOptions sizes = models::usual_images(options.model);
    model_ = models::make_model(options.model, sizes);
    images_ = empty({options.batch, sizes.in_channels, sizes.image_size, sizes.image_size});
    normal_(images_, 0, 1);
    std::vector<int64_t> labels(options.batch);
    for (int64_t i = 0; i < options.batch; ++i) labels[i] = i * 7 % sizes.num_classes;
    labels_ = to(tensor(labels), device_);
    images_ = to(images_, device_);
    model_->to(device_);
    optimizer_ = std::make_unique<optim::SGD>(
        model_->named_parameters(),
        optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});
    if (CapturedStep::possible(device_)) captured_step_.emplace(device_, [this] { compute(); });
  }

  // Takes a step as `train` does: captured if possible, and then all its time counts as the first
  // phase's.
  StepTimes step() {
    if (!captured_step_) return step_by_phases();
    return {milliseconds([&] {
      (*captured_step_)();
      synchronize(current_stream(device_));
    })};
  }
  StepTimes step_by_phases() {
    StepTimes times = compute();
    times.back() += milliseconds([&] { synchronize(current_stream(device_)); });
    return times;
  }
  void profile_into(KernelTable& table) {
    const KernelProfile profile;
    profile_ = &profile;
    const StepTimes times = step_by_phases();
    profile_ = nullptr;
    std::vector<KernelTable::Phase> phases;
    for (size_t i = 0, begin = 0; i < kPhases.size(); begin = calls_[i++])
      phases.push_back(
          {kPhases[i], times[i], std::span(profile.calls()).subspan(begin, calls_[i] - begin)});
    table.add_step(phases);
  }
  bool captured() const { return captured_step_.has_value(); }
  float loss() const { return loss_.item<float>(); }

 private:
  StepTimes compute() {
    StepTimes times;
    Tensor loss;
    const auto phase = [&](size_t i, auto&& body) {
      times[i] = milliseconds(body);
      if (profile_) calls_[i] = profile_->calls().size();
    };
    phase(0, [&] { optimizer_->zero_grad(); });
    phase(1, [&] {
      loss = cross_entropy(to(model_->forward(to(images_, dtype_)), DType::Float32), labels_);
    });
    phase(2, [&] { loss.backward(); });
    phase(3, [&] { optimizer_->step(); });
    loss_ = loss.detach();
    return times;
  }

  template <class Body>
  static double milliseconds(Body&& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }

  Device device_;
  DType dtype_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<optim::SGD> optimizer_;
  Tensor images_;
  Tensor labels_;
  Tensor loss_;
  std::optional<CapturedStep> captured_step_;
  // The profile of the step under way, and its number of calls at the end of each phase.
  const KernelProfile* profile_ = nullptr;
  std::array<size_t, kPhases.size()> calls_ = {};
};

// Since this process was started, with the kernel's resolution of 10 ms.
double milliseconds_since_start() {
  std::ifstream file("/proc/self/stat");
  std::stringstream text;
  text << file.rdbuf();
  // The name in front may hold spaces.
  std::istringstream fields(text.str().substr(text.str().rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;  // 22: start time, in ticks since boot
  timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double ticks = std::strtod(field.c_str(), nullptr);
  const double per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return (static_cast<double>(now.tv_sec) - ticks / per_second) * 1e3 +
         static_cast<double>(now.tv_nsec) * 1e-6;
}

int64_t peak_resident_bytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

int bench_train(const BenchTrainOptions& options) {
  recipe_field("model").check_choice(options.model);
  const Device device(options.device);
  set_provider(provider_named(options.provider, device));
  check_device("bench train", device);
  const std::string processor = device_backend(device.type).describe(device.index);
  if (processor.starts_with("emulated"))
    throw DeviceError(
        fmt::format("bench train: {} is {}, and its times mean nothing", str(device), processor));
  set_conv_algorithm(conv_algorithm_named(options.conv));
  recipe_field("float32_matmul_precision").check_choice(options.float32_matmul_precision);
  set_float32_matmul_precision(options.float32_matmul_precision);
  if (options.threads > 0) set_cpu_cores(options.threads);

  TrainWorkload workload(options);
  workload.step();
  const double first_step = milliseconds_since_start();
  for (int i = 0; i < options.warm_up; ++i) workload.step();

  const MemoryStats before = memory_stats(device);
  reset_peak_memory(device);
  std::vector<StepTimes> steps;
  for (int i = 0; i < options.steps; ++i) steps.push_back(workload.step());
  const MemoryStats after = memory_stats(device);

  const auto samples = [&](auto value) {
    std::vector<double> all;
    for (const StepTimes& step : steps) all.push_back(value(step));
    return all;
  };
  const std::vector<double> totals =
      samples([](const StepTimes& step) { return std::accumulate(step.begin(), step.end(), 0.0); });
  const double step_ms = median(totals);
  const double low = quantile(totals, 0.25);
  const double high = quantile(totals, 0.75);
  const double rate = static_cast<double>(options.batch) / step_ms * 1e3;
  nlohmann::json report = {
      {"model", options.model},
      {"batch", options.batch},
      {"dtype", options.dtype},
      {"conv", options.conv},
      {"provider", options.provider},
      {"float32_matmul_precision", options.float32_matmul_precision},
      {"device", str(device)},
      {"processor", processor},
      {"isa", isa()},
      {"threads", cpu_cores()},
      {"captured", workload.captured()},
      {"steps", options.steps},
      {"images_per_second", rate},
      {"median_ms", step_ms},
      {"quartiles_ms", {low, high}},
      {"first_step_ms", first_step},
      {"peak_bytes", std::max(before.peak_bytes, after.peak_bytes)},
      {"tensor_bytes", after.peak_bytes},  // in a step, scratch of kernels included
      {"peak_resident_bytes", peak_resident_bytes()},
      {"allocations_per_step", (after.allocations - before.allocations) / options.steps},
      {"system_allocations", after.cache_misses - before.cache_misses},
      {"loss", workload.loss()}};
  result("{}, batch {}, {}, {}: {:.0f} images/s", options.model, options.batch, options.dtype,
         counted(cpu_cores(), "thread"), rate);
  result("{} {:.2f} ms ({:.2f}–{:.2f}), median of {}",
         workload.captured() ? "captured step" : "step", step_ms, low, high, options.steps);
  // On CUDA the host runs ahead of the device.
  for (size_t i = 0; device.is_cpu() && i < kPhases.size(); ++i) {
    const double phase = median(samples([i](const StepTimes& step) { return step[i]; }));
    report["phases_ms"][kPhases[i]] = phase;
    result("  {:<10}{:>9.2f} ms", kPhases[i], phase);
  }
  result("memory {} in tensors, {} in all · first step after {:.0f} ms",
         human_bytes(after.peak_bytes), human_bytes(peak_resident_bytes()), first_step);
  result("       {} allocations a step, {} from the system",
         (after.allocations - before.allocations) / options.steps,
         after.cache_misses - before.cache_misses);
  if (options.profile) {
    KernelTable table;
    for (int i = 0; i < options.steps; ++i) workload.profile_into(table);
    table.print();
    report["profile"] = table.to_json();
  }
  print_json(report);
  return kOk;
}

void add_options(CLI::App* app, BenchTrainOptions& o) {
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.model, "as for train");
  add_device_option(app, o.device);
  app->add_option("--batch", o.batch, "images of a step")->check(kPositive);
  app->add_option("--dtype", o.dtype, "fp32, bf16 or fp16, of the images; parameters stay float32");
  app->add_option("--conv", o.conv, "auto, direct or winograd");
  app->add_option("--provider", o.provider, recipe_field("provider").help);
  app->add_option("--float32-matmul-precision", o.float32_matmul_precision,
                  recipe_field("float32_matmul_precision").help);
  app->add_option("--threads", o.threads, "of the processor")
      ->default_str("one per core")
      ->check(CLI::Range(1, 1024));
  app->add_option("--steps", o.steps, "timed steps")->check(kPositive);
  app->add_option("--warm-up", o.warm_up, "steps before them")->check(kNotNegative);
  app->add_flag("--profile", o.profile,
                "then as many steps again: each kernel's time, and what the machine allows");
}

const Command kBenchTrain(194, "bench train", "What a training step costs, on synthetic data",
                          bench_train, add_options);

}  // namespace
}  // namespace ringgrad::program
