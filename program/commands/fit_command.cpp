// `ringgrad fit`: the largest batch that so much memory holds, by each way to train that saves
// some.
#include <algorithm>
#include <limits>
#include <optional>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/recompute.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/recipe.h"
#include "ringgrad/program/train/mixed_precision.h"

namespace ringgrad::program {
namespace {

struct FitOptions {
  std::string model = "resnet18";
  uint64_t memory = uint64_t{2} << 30;
  std::string optimizer = "sgd";
  int image_size = 0;  // 0: as the model's usual images
  int ranks = 2;
  std::string device = "cpu";
};

struct Way {
  std::string options;  // the options of `train`
  std::string dtype = "fp32";
  bool recompute = false;
  int ranks = 1;
};

// Measures the memory of a step on noise: the peak of the bytes in this process's tensors.
class Measurement {
 public:
  Measurement(const FitOptions& options, const Way& way) : device_(options.device) {
    recipe_.model = options.model;
    recipe_.optimizer = options.optimizer;
    recipe_.dtype = way.dtype;
    recipe_.amp = way.dtype == "fp32" ? "O0" : "O1";
    manual_seed(1);
    sizes_ = models::usual_images(options.model);
    if (options.image_size > 0) sizes_.image_size = options.image_size;
    model_ = models::make_model(options.model, sizes_);
    model_->to(device_);
    precision_.emplace(recipe_, *model_, device_);
    optimizer_ = make_optimizer(recipe_, precision_->trained_parameters());
    if (way.recompute) recomputation_.emplace(*model_);
  }

  // Throws OutOfMemoryError.
  int64_t peak(int64_t batch) {
    const Tensor images =
        to(randn({batch, sizes_.in_channels, sizes_.image_size, sizes_.image_size}), device_);
    const Tensor labels = zeros({batch}, {.dtype = DType::Int64, .device = device_});
    reset_peak_memory(device_);
    precision_->zero_grad(*optimizer_);
    const Tensor x = to(images, dtype_named(recipe_.dtype));
    precision_->scale(cross_entropy(to((*model_)(x), DType::Float32), labels)).backward();
    precision_->step(*optimizer_, 0);
    synchronize(current_stream(device_));
    return memory_stats(device_).peak_bytes;
  }

  // Returns the bytes of the optimizer's state, which ranks can divide.
  int64_t state_bytes() {
    int64_t bytes = 0;
    for (const auto& [name, tensor] : optimizer_->state_dict())
      bytes += tensor.numel() * static_cast<int64_t>(itemsize(tensor.dtype()));
    return bytes;
  }

  // Returns the bytes of the gradients, which ranks can divide, too.
  int64_t gradient_bytes() {
    int64_t bytes = 0;
    for (const Tensor& grads : optimizer_->flat_grads())
      bytes += grads.numel() * static_cast<int64_t>(itemsize(grads.dtype()));
    return bytes;
  }

 private:
  const Device device_;
  Recipe recipe_;
  models::ModelOptions sizes_;
  std::shared_ptr<nn::Module> model_;
  std::optional<MixedPrecision> precision_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<nn::Recomputation> recomputation_;
};

// Memory as a function of the batch: fixed + batch · each.
struct Line {
  double fixed;
  double each;
  int64_t state;
  int64_t gradients;

  int64_t largest(double memory) const {
    return std::max<int64_t>(0, static_cast<int64_t>((memory - fixed) / each));
  }
};

struct Fit {
  Way way;
  int64_t batch = 0;     // for each rank; 0: not even one of two images
  double predicted = 0;  // bytes
  int64_t measured = 0;  // bytes; 0: was not measured
};

constexpr int64_t kSmall = 16;  // smaller batches have other plans, and memory comes in blocks
constexpr int kMostSteps = 8;
constexpr double kFull = 0.97;  // a fit that uses this part of the memory is close enough

// Two small steps give a line, which predicts the memory. Steps of the predicted batches then close
// in on the largest one that fits.
std::pair<Fit, Line> fit_one(const FitOptions& options, const Way& way) {
  Measurement step(options, way);
  const auto memory = static_cast<double>(options.memory);
  (void)step.peak(2);  // gradients and the optimizer's state have their memory then
  const auto small = static_cast<double>(step.peak(kSmall));
  const auto twice = static_cast<double>(step.peak(2 * kSmall));
  const double each = std::max(1.0, (twice - small) / kSmall);
  const Line predicted{small - each * kSmall, each, step.state_bytes(), step.gradient_bytes()};
  Line line = predicted;
  Fit fit{.way = way};
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
  fit.predicted = predicted.fixed + static_cast<double>(fit.batch) * predicted.each;
  line.each = fit.batch > 0 ? (static_cast<double>(fit.measured) - line.fixed) /
                                  static_cast<double>(fit.batch)
                            : each;
  return {fit, line};
}

// Fits the same on each of several ranks with so much memory each. State and gradients that other
// ranks keep make room for images.
Fit on_ranks(const FitOptions& options, const Fit& alone, const Line& line, int zero) {
  Fit fit{.way = alone.way, .batch = alone.batch, .predicted = alone.predicted};
  if (alone.measured > 0) fit.predicted = static_cast<double>(alone.measured);
  fit.way.ranks = options.ranks;
  fit.way.options += fmt::format("{}--ranks {}", fit.way.options.empty() ? "" : " ", options.ranks);
  if (zero == 0) return fit;
  fit.way.options += fmt::format(" --zero {}", zero);
  const int64_t divided = line.state + (zero > 1 ? line.gradients : 0);
  const double room = static_cast<double>(divided) * (1 - 1.0 / options.ranks);
  const int64_t batch = alone.batch > 0 ? alone.batch + static_cast<int64_t>(room / line.each)
                                        : line.largest(static_cast<double>(options.memory) + room);
  fit.batch = batch < 2 ? 0 : batch;
  fit.predicted += static_cast<double>(fit.batch - alone.batch) * line.each - room;
  return fit;
}

std::string megabytes(double bytes) { return fmt::format("{:.0f} MB", bytes / 1e6); }

void report(const FitOptions& options, const std::vector<Fit>& fits) {
  result("{}, {}: the largest batch in {} for each process", options.model, options.optimizer,
         megabytes(static_cast<double>(options.memory)));
  result("{:<44} {:>8}  {:>10}  {:>10}", "ringgrad train …", "--batch", "predicted", "measured");
  nlohmann::json rows = nlohmann::json::array();
  for (const Fit& fit : fits) {
    const int64_t global = fit.batch * fit.way.ranks;
    result("{:<44} {:>8}  {:>10}  {:>10}", fit.way.options, global > 0 ? str(global) : "none",
           megabytes(fit.predicted),
           fit.measured > 0 ? megabytes(static_cast<double>(fit.measured)) : "–");
    rows.push_back({{"options", fit.way.options},
                    {"batch", global},
                    {"predicted_bytes", fit.predicted},
                    {"measured_bytes", fit.measured}});
  }
  result("With --accumulate K a step has K times as many images in the same memory.");
  print_json({{"model", options.model}, {"memory", options.memory}, {"ways", rows}});
}

int fit(const FitOptions& options) {
  recipe_field("model").check_choice(options.model);
  recipe_field("optimizer").check_choice(options.optimizer);
  std::vector<Fit> fits;
  std::vector<Fit> on_several;
  for (const bool recompute : {false, true})
    for (const char* dtype : {"fp32", "bf16"}) {
      Way way;
      way.dtype = dtype;
      way.recompute = recompute;
      if (way.dtype != "fp32") way.options = "--dtype bf16";
      if (recompute)
        way.options += way.options.empty() ? "--recompute blocks" : " --recompute blocks";
      std::pair<Fit, Line> found;
      try {
        found = fit_one(options, way);
      } catch (const OutOfMemoryError&) {
        throw;
      } catch (const Error& error) {  // a network of which nothing can be computed again
        if (!recompute) throw;
        message("note    {}", error.what());
        break;
      }
      fits.push_back(found.first);
      for (const int zero : {0, 1, 2})
        on_several.push_back(on_ranks(options, found.first, found.second, zero));
    }
  fits.insert(fits.end(), on_several.begin(), on_several.end());
  report(options, fits);
  return kOk;
}

void add_options(CLI::App* app, FitOptions& o) {
  app->add_option("--model", o.model, "as for train")->capture_default_str();
  app->add_option("--memory", o.memory, "for the tensors of one process, such as 2GB")
      ->transform(CLI::AsSizeValue(true))
      ->capture_default_str();
  app->add_option("--optimizer", o.optimizer, "as for train")->capture_default_str();
  app->add_option("--image-size", o.image_size, "pixels a side (default: the model's usual ones)")
      ->check(kPositive);
  app->add_option("--ranks", o.ranks, "ranks in the rows that use several")
      ->check(kPositive)
      ->capture_default_str();
  add_device_option(app, o.device);
}

const Command kFit(75, "fit", "The largest batch that fits in memory, by each way to save some",
                   fit, add_options);

}  // namespace
}  // namespace ringgrad::program
