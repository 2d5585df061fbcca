#include "ringgrad/program/commands/logbook.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::program {
namespace {

// Four digits are enough for a curve, and a line stays short.
double rounded(double x) { return parse_number<double>(fmt::format("{:.4g}", x)).value_or(x); }

// Adds scalars: "loss" → "loss", gradient_norms.conv1 → "gradient_norms/conv1". Leaves out lists,
// and values that are no numbers.
void add_scalars(const nlohmann::json& line, const std::string& before,
                 std::vector<std::pair<std::string, double>>& out) {
  for (const auto& [key, value] : line.items()) {
    if (value.is_object()) add_scalars(value, before + key + "/", out);
    if (value.is_number() && key != "step") out.emplace_back(before + key, value.get<double>());
  }
}

}  // namespace

std::map<std::string, double> gradient_norms(nn::Module& model) {
  std::map<std::string, double> norms;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Tensor gradient = parameter.grad();
    if (!gradient || !gradient.is_contiguous()) continue;
    const Tensor sum = empty({}, {.dtype = DType::Float32, .device = gradient.device()});
    kernels::sum_squares(sum, gradient);
    norms[name.substr(0, name.rfind('.'))] += sum.item<float>();
  }
  for (auto& [layer, norm] : norms) norm = rounded(std::sqrt(norm));
  // JSON has no word for it.
  std::erase_if(norms, [](const auto& norm) { return !std::isfinite(norm.second); });
  return norms;
}

std::optional<double> LossSince::look(const Training& training) {
  const int64_t images = training.own_images();
  const double sum = training.own_mean_loss() * static_cast<double>(images);
  if (images < images_) {  // another epoch
    images_ = 0;
    sum_ = 0;
  }
  const int64_t own = images - std::exchange(images_, images);
  const double mean =
      (sum - std::exchange(sum_, sum)) / static_cast<double>(std::max<int64_t>(1, own));
  return own > 0 && std::isfinite(mean) ? std::optional(mean) : std::nullopt;
}

Logbook::Logbook(const RunDirectory& run, Training& training, int64_t step_batch, int64_t every,
                 bool tensorboard)
    : run_(run), training_(training), step_batch_(step_batch), every_(every) {
  if (tensorboard) events_.emplace(run.path());
}

void Logbook::begin_epoch() {
  since_ = std::chrono::steady_clock::now();
  steps_ = 0;
  data_ = training_.waited_for_data();
  ranks_ = training_.waited_for_ranks();
}

void Logbook::after_step() {
  ++steps_;
  if (every_ == 0 || training_.step() % every_ != 0) return;
  const double seconds = std::max(seconds_since(since_), 1e-9);
  nlohmann::json line = {
      {"step", training_.step()},
      {"learning_rate", training_.lr()},
      {"images_per_second", rounded(static_cast<double>(steps_ * step_batch_) / seconds)},
      {"waiting_for_data", rounded((training_.waited_for_data() - data_) / seconds)},
      {"gradient_norms", gradient_norms(training_.model())}};
  if (!training_.step_captured())  // in a replay the host sees no waiting
    line["waiting_for_communication"] = rounded((training_.waited_for_ranks() - ranks_) / seconds);
  if (const auto loss = loss_.look(training_)) line["loss"] = rounded(*loss);
  write(line);
  begin_epoch();
}

void Logbook::write(const nlohmann::json& line) {
  run_.append_metrics(line);
  if (!events_) return;
  std::vector<std::pair<std::string, double>> scalars;
  add_scalars(line, line.contains("epoch") ? "epoch/" : "step/", scalars);
  events_->add(line.at("step"), scalars);
}

}  // namespace ringgrad::program
