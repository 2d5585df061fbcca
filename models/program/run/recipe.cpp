#include "ringgrad/models/program/run/recipe.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/registry.h"

namespace ringgrad::program {
namespace {

const std::vector<std::string> kOptimizers = {"sgd", "adam", "adamw"};
const std::vector<std::string> kDTypes = {"fp32", "bf16", "fp16"};
const std::vector<std::string> kAmpLevels = {"O0", "O1", "O2", "O3"};
const std::vector<std::string> kConvAlgorithms = {"auto", "direct", "winograd"};  // in the order of ConvAlgorithm
const std::vector<std::string> kProviderNames = {"auto", "native", "vendor", "fastest"};
const std::vector<std::string> kSchedules = {"constant", "step", "cosine", "onecycle"};

void check_choice(const char* option, const std::string& value, const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  throw UsageError(fmt::format("{} is '{}', expected one of {}{}", option, value, fmt::join(choices, ", "),
                               did_you_mean(value, choices)));
}

void check_value(const char* option, double value, bool valid, const char* expected) {
  if (!valid) throw UsageError(fmt::format("{} is {}, expected {}", option, value, expected));
}

template <class T>
void check_range(const char* option, T value, T low, T high) {
  if (value >= low && value <= high) return;  // NaN is not
  throw UsageError(fmt::format("{} is {}, expected {} to {}", option, value, low, high));
}

template <class T>
void overlay(T& value, const std::optional<T>& given) {
  if (given) value = *given;
}

// What reached the accuracies in README, there with fewer epochs of CIFAR-10.
Recipe defaults(const std::string& model, const std::string& data) {
  Recipe recipe;
  recipe.model = model;
  recipe.data = data;
  if (data == "digits" || data == "mnist") {
    recipe.epochs = data == "mnist" ? 3 : 4;
    recipe.lr = 0.05;
    recipe.weight_decay = 1e-4;
  } else {
    recipe.epochs = data == "shapes" ? 5 : 30;
    recipe.crop = 4;
    recipe.flip = true;
    recipe.nesterov = true;
  }
  return recipe;
}

}  // namespace

Recipe make_recipe(const TrainOptions& options) {
  const std::string data = options.data.empty() ? "digits" : options.data;
  const bool gray = data == "digits" || data == "mnist";
  Recipe recipe = defaults(options.model.empty() ? (gray ? "cnn" : "resnet20") : options.model, data);
  overlay(recipe.epochs, options.epochs);
  overlay(recipe.batch, options.batch);
  overlay(recipe.optimizer, options.optimizer);
  if (options.optimizer && *options.optimizer != "sgd") recipe.lr = 1e-3;
  overlay(recipe.lr, options.lr);
  overlay(recipe.momentum, options.momentum);
  overlay(recipe.nesterov, options.nesterov);
  overlay(recipe.weight_decay, options.weight_decay);
  overlay(recipe.schedule, options.schedule);
  overlay(recipe.warmup, options.warmup);
  overlay(recipe.label_smoothing, options.label_smoothing);
  overlay(recipe.clip_norm, options.clip_norm);
  overlay(recipe.crop, options.crop);
  overlay(recipe.flip, options.flip);
  overlay(recipe.cutout, options.cutout);
  if (options.amp && *options.amp != "O0") recipe.dtype = "fp16";
  overlay(recipe.dtype, options.dtype);
  recipe.amp = recipe.dtype == "fp32" ? "O0" : "O1";
  overlay(recipe.amp, options.amp);
  overlay(recipe.conv, options.conv);
  overlay(recipe.provider, options.provider);

  if (recipe.optimizer != "sgd" && (options.momentum || options.nesterov))
    throw UsageError(
        fmt::format("--momentum and --nesterov belong to sgd; {} has moments of its own", recipe.optimizer));
  if (options.nesterov.value_or(false) && recipe.momentum == 0)
    throw UsageError("--nesterov with --momentum 0: Nesterov's momentum needs some");
  if (recipe.momentum == 0) recipe.nesterov = false;
  check_recipe(recipe);
  return recipe;
}

void check_recipe(const Recipe& r) {
  check_data(r.data);
  check_model(r.model);
  check_choice("--optimizer", r.optimizer, kOptimizers);
  check_choice("--schedule", r.schedule, kSchedules);
  check_choice("--dtype", r.dtype, kDTypes);
  check_choice("--amp", r.amp, kAmpLevels);
  if ((r.amp == "O0") != (r.dtype == "fp32"))
    throw UsageError(
        fmt::format("--amp {} and --dtype {} exclude each other: O0 is fp32, the others are not", r.amp, r.dtype));
  check_choice("--conv", r.conv, kConvAlgorithms);
  check_choice("--provider", r.provider, kProviderNames);
  // The limits are far beyond use, and keep products of these numbers far from where integers end.
  check_range<int64_t>("--epochs", r.epochs, 1, 1'000'000);
  check_range<int64_t>("--batch", r.batch, 1, 1'000'000);
  check_range<double>("--warmup", r.warmup, 0, 1'000'000);
  if (r.warmup > 0 && r.schedule == "onecycle")
    throw UsageError(
        "--warmup goes with --schedule constant, step or cosine; onecycle, the default, warms up by itself");
  check_range<double>("--weight-decay", r.weight_decay, 0, 1000);
  check_range<int64_t>("--crop", r.crop, 0, 16);
  check_range<int64_t>("--cutout", r.cutout, 0, 32);
  check_value("--lr", r.lr, r.lr > 0 && std::isfinite(r.lr), "a positive number");
  check_value("--momentum", r.momentum, r.momentum >= 0 && r.momentum < 1, "a number in [0, 1)");
  check_value("--label-smoothing", r.label_smoothing, r.label_smoothing >= 0 && r.label_smoothing < 1,
              "a number in [0, 1)");
  check_value("--clip-norm", r.clip_norm, r.clip_norm >= 0 && std::isfinite(r.clip_norm), "zero (never) or more");
}

optim::Schedule learning_rate(const Recipe& recipe, int64_t steps_per_epoch) {
  const auto warmup = std::llround(recipe.warmup * static_cast<double>(steps_per_epoch));
  const int64_t total = std::max<int64_t>(recipe.epochs * steps_per_epoch - warmup, 2);
  optim::Schedule schedule = [](double lr, int64_t) { return lr; };
  if (recipe.schedule == "onecycle") schedule = optim::OneCycleLR{.max_lr = recipe.lr, .total_steps = total};
  if (recipe.schedule == "cosine") schedule = optim::CosineAnnealingLR{.t_max = total};
  if (recipe.schedule == "step") schedule = optim::MultiStepLR{.milestones = {total / 2, total * 3 / 4}};
  if (warmup == 0) return schedule;
  const optim::LinearLR rise{.start_factor = 1.0 / static_cast<double>(warmup), .total_iters = warmup};
  return optim::SequentialLR{.schedules = {rise, schedule}, .milestones = {warmup}};
}

void check_model(const std::string& name) { check_choice("--model", name, models::model_names()); }

void check_data(const std::string& name) {
  std::vector<std::string> names;
  for (const DatasetInfo& info : datasets()) names.push_back(info.name);
  check_choice("--data", name, names);
}

DType dtype_named(const std::string& name) {
  check_choice("--dtype", name, kDTypes);
  return name == "bf16" ? DType::BFloat16 : name == "fp16" ? DType::Float16 : DType::Float32;
}

ConvAlgorithm conv_algorithm_named(const std::string& name) {
  check_choice("--conv", name, kConvAlgorithms);
  const auto at = std::find(kConvAlgorithms.begin(), kConvAlgorithms.end(), name);
  return static_cast<ConvAlgorithm>(at - kConvAlgorithms.begin());
}

std::optional<Provider> provider_named(const std::string& name) {
  check_choice("--provider", name, kProviderNames);
  for (const Provider provider : {Provider::Native, Provider::Vendor, Provider::Fastest})
    if (name == ringgrad::name(provider)) return provider;
  return {};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recipe, model, data, epochs, batch, optimizer, lr, momentum, nesterov, weight_decay,
                                   schedule, warmup, label_smoothing, clip_norm, crop, cutout, flip, dtype, amp, conv,
                                   provider)

nlohmann::json to_json(const Recipe& recipe) { return recipe; }

Recipe recipe_from_json(const nlohmann::json& json) {
  const Recipe recipe = json.get<Recipe>();
  const nlohmann::json understood = recipe;
  for (const auto& [key, value] : understood.items())  // a fraction would have become a whole number
    if (json.at(key) != value)
      throw UsageError(fmt::format("{} is {}, expected a whole number", key, json.at(key).dump()));
  return recipe;
}

std::string summary(const Recipe& r) {
  std::string text = fmt::format("{} lr {} {}", r.optimizer, r.lr, r.schedule);
  if (r.optimizer == "sgd")
    text += fmt::format(" momentum {}{}", r.momentum,
                        r.nesterov        ? " (Nesterov)"
                        : r.momentum == 0 ? " (so no Nesterov)"
                                          : "");
  if (r.weight_decay > 0) text += fmt::format(" weight decay {}", r.weight_decay);
  if (r.warmup > 0) text += fmt::format(" warm-up {} epochs", r.warmup);
  if (r.label_smoothing > 0) text += fmt::format(" label smoothing {}", r.label_smoothing);
  if (r.clip_norm > 0) text += fmt::format(" clip {}", r.clip_norm);
  if (r.crop > 0) text += fmt::format(" crop {}", r.crop);
  if (r.flip) text += " flip";
  if (r.cutout > 0) text += fmt::format(" cutout {}", r.cutout);
  if (r.dtype != "fp32") text += fmt::format(" {} ({})", r.dtype, r.amp);
  if (r.conv != "auto") text += fmt::format(" conv {}", r.conv);
  if (r.provider != "auto") text += fmt::format(" provider {}", r.provider);
  return text;
}

}  // namespace ringgrad::program
