#include "ringgrad/program/commands/fits.h"

#include <algorithm>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/text.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/nn/recompute.h"
#include "ringgrad/program/bench/ddp_workload.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/train/mixed_precision.h"

namespace ringgrad::program {
namespace {

// Measures the memory of a step on noise: the peak of the bytes in this process's tensors.
class Measurement {
 public:
  Measurement(const FitOptions& options, const std::string& dtype, bool recompute)
      : device_(options.device),
        images_(options.images.value_or(models::usual_images(options.model))) {
    recipe_.model = options.model;
    recipe_.optimizer = options.optimizer;
    recipe_.dtype = dtype;
    recipe_.amp = dtype == "fp32" ? "O0" : "O1";
    if (options.image_size > 0) images_.image_size = options.image_size;
    manual_seed(1);
    model_ = models::make_model(options.model, images_);
    model_->to(device_);
    precision_.emplace(recipe_, *model_, device_);
    optimizer_ = make_optimizer(recipe_, precision_->trained_parameters());
    if (recompute) recomputation_.emplace(*model_);
  }

  // Throws OutOfMemoryError.
  int64_t peak(int64_t batch) {
    const Tensor images =
        to(randn({batch, images_.in_channels, images_.image_size, images_.image_size}), device_);
    const Tensor labels = zeros({batch}, {.dtype = DType::Int64, .device = device_});
    reset_peak_memory(device_);
    precision_->zero_grad(*optimizer_);
    const Tensor x = to(images, dtype_named(recipe_.dtype));
    precision_->scale(cross_entropy(to((*model_)(x), DType::Float32), labels)).backward();
    precision_->step(*optimizer_, 0);
    synchronize(current_stream(device_));
    return memory_stats(device_).peak_bytes;
  }

  // Return the bytes of the optimizer's state, of the gradients, which ranks can divide, too, and
  // of what each replica has.
  int64_t state_bytes() { return bytes_of(nn::tensors_of(optimizer_->state_dict())); }
  int64_t gradient_bytes() { return bytes_of(optimizer_->flat_grads()); }
  int64_t replica_bytes() {
    return gradient_bytes() + bytes_of(nn::tensors_of(model_->state_dict()));
  }

 private:
  const Device device_;
  models::ModelOptions images_;
  Recipe recipe_;
  std::shared_ptr<nn::Module> model_;
  std::optional<MixedPrecision> precision_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<nn::Recomputation> recomputation_;
};

// Memory as a function of the batch: fixed + batch · each.
struct Line {
  double fixed;
  double each;

  int64_t largest(double memory) const {
    return std::max<int64_t>(0, static_cast<int64_t>((memory - fixed) / each));
  }
  double at(int64_t batch) const { return fixed + static_cast<double>(batch) * each; }
};

constexpr int64_t kSmall = 16;  // smaller batches have other plans, and memory comes in blocks
constexpr int kMostSteps = 8;
constexpr double kFull = 0.97;  // a fit that uses this part of the memory is close enough

// Closes in on the largest batch that fits. Returns the line through it.
Line measure(Measurement& step, Line line, double memory, Fit& fit) {
  int64_t too_large = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < kMostSteps && too_large - fit.batch > 1; ++i) {
    const int64_t batch = std::clamp(line.largest(memory), fit.batch + 1, too_large - 1);
    if (batch < 2) break;
    const int64_t bytes = step.peak(batch);
    line.each = (static_cast<double>(bytes) - line.fixed) / static_cast<double>(batch);
    if (static_cast<double>(bytes) > memory) {
      too_large = batch;
      continue;
    }
    fit.batch = batch;
    fit.measured = bytes;
    if (static_cast<double>(bytes) >= kFull * memory) break;
  }
  if (fit.batch > 0)
    line.each = (static_cast<double>(fit.measured) - line.fixed) / static_cast<double>(fit.batch);
  return line;
}

// Adds the rows of one dtype, with or without recomputation: one process first, then several
// devices, then several ranks with so much memory each.
void add_fits(const FitOptions& options, Measurement& step, const std::string& way, int64_t small,
              bool measures, std::vector<Fit>& alone, std::vector<Fit>& several) {
  const auto memory = static_cast<double>(options.memory);
  const auto at_small = static_cast<double>(step.peak(small));
  const auto at_twice = static_cast<double>(step.peak(2 * small));
  const double each = std::max(1.0, (at_twice - at_small) / static_cast<double>(small));
  const Line predicted{at_small - each * static_cast<double>(small), each};
  Fit one{.options = way};
  Line line = predicted;
  if (measures)
    line = measure(step, predicted, memory, one);
  else if (const int64_t batch = predicted.largest(memory); batch > 1)
    one.batch = batch;
  one.predicted = predicted.at(one.batch);
  alone.push_back(one);

  const int n = options.ranks;
  const double bytes = one.measured > 0 ? static_cast<double>(one.measured) : one.predicted;
  const auto row = [&](const std::string& words, int64_t batch, double predicted_bytes) {
    several.push_back({way + (way.empty() ? "" : " ") + words, batch, predicted_bytes});
  };
  // On CPUs the replicas share the memory of their process.
  const double replicas =
      Device(options.device).is_cpu() ? static_cast<double>((n - 1) * step.replica_bytes()) : 0;
  const int64_t of_replicas =
      replicas > 0 ? line.largest(memory - replicas) / n * n : n * one.batch;
  row(fmt::format("--parallel dp --ranks {}", n), of_replicas,
      replicas > 0 ? replicas + line.at(of_replicas) : bytes);
  // State and gradients that other ranks keep make room for images.
  for (const int zero : {0, 1, 2}) {
    const int64_t divided =
        (zero > 0 ? step.state_bytes() : 0) + (zero > 1 ? step.gradient_bytes() : 0);
    const double room = static_cast<double>(divided) * (1 - 1.0 / n);
    const int64_t batch = one.batch > 0 ? one.batch + static_cast<int64_t>(room / line.each)
                                        : line.largest(memory + room);
    const int64_t fitting = batch < 2 ? 0 : batch;
    row(fmt::format("--ranks {}{}", n, zero > 0 ? fmt::format(" --zero {}", zero) : ""),
        n * fitting, bytes + static_cast<double>(fitting - one.batch) * line.each - room);
  }
}

std::vector<Fit> find_fits(const FitOptions& options, int64_t small, bool measures,
                           double seconds) {
  std::vector<Fit> fits;
  std::vector<Fit> several;
  const auto begin = std::chrono::steady_clock::now();
  for (const bool recompute : {false, true})
    for (const char* dtype : {"fp32", "bf16"}) {
      std::string way = dtype == std::string("bf16") ? "--dtype bf16" : "";
      if (recompute) way += way.empty() ? "--recompute blocks" : " --recompute blocks";
      const double spent = seconds_since(begin);
      try {
        Measurement step(options, dtype, recompute);
        (void)step.peak(2);  // gradients and the optimizer's state have their memory then
        const double of_two = seconds_since(begin) - spent;
        if (spent + of_two * static_cast<double>(1 + 3 * small / 2) > seconds) break;
        add_fits(options, step, way, small, measures, fits, several);
      } catch (const OutOfMemoryError&) {
        throw;
      } catch (const Error& error) {  // a network of which nothing can be computed again
        if (!recompute) throw;
        message("note    {}", error.what());
        break;
      }
    }
  fits.insert(fits.end(), several.begin(), several.end());
  return fits;
}

}  // namespace

std::vector<Fit> measured_fits(const FitOptions& options) {
  return find_fits(options, kSmall, true, std::numeric_limits<double>::infinity());
}

std::vector<Fit> predicted_fits(const FitOptions& options, int64_t small, double seconds) {
  return find_fits(options, std::min(small, kSmall), false, seconds);
}

std::string megabytes(double bytes) { return fmt::format("{:.0f} MB", bytes / 1e6); }

std::vector<std::string> lines_of(const std::vector<Fit>& fits) {
  std::vector<std::string> lines{fmt::format("{:<56} {:>8}  {:>10}  {:>10}", "ringgrad train …",
                                             "--batch", "predicted", "measured")};
  for (const Fit& fit : fits)
    lines.push_back(
        fmt::format("{:<56} {:>8}  {:>10}  {:>10}", fit.options,
                    fit.batch > 0 ? str(fit.batch) : "none", megabytes(fit.predicted),
                    fit.measured > 0 ? megabytes(static_cast<double>(fit.measured)) : "–"));
  return lines;
}

}  // namespace ringgrad::program
