#include "ringgrad/program/run/recipe.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include <nlohmann/json.hpp>

#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/data_facts.h"

namespace ringgrad::program {
namespace {

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetInfo& info : datasets()) names.push_back(info.name);
  return names;
}

using Range = RecipeField::Range;
constexpr double kAboveZero = std::numeric_limits<double>::denorm_min(),
                 kLargest = std::numeric_limits<double>::max(),
                 kBelowOne = 1 - std::numeric_limits<double>::epsilon() / 2;
constexpr Range kFraction{0, kBelowOne, "a number in [0, 1)"};
// It is far beyond use, and products of such numbers are far from the limit of integers.
constexpr double kMany = 1'000'000;

template <class T>
void check_value(const RecipeField& field, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    field.check_choice(value);
  } else if constexpr (!std::is_same_v<T, bool>) {
    const auto& [low, high, words] = field.range;
    // NaN is not.
    if (static_cast<double>(value) >= low && static_cast<double>(value) <= high) return;
    throw UsageError("{} is {}, expected {}", field.option(), value,
                     words ? words : fmt::format("{} to {}", low, high));
  }
}

// of pictures of one's own
constexpr int64_t kLeastSize = 32;
constexpr int64_t kLargestSize = 224;

// Some hundred pictures, which are found again from wherever the run is looked at.
Recipe defaults_for_own(const std::string& model, const std::string& data) {
  Recipe recipe;
  recipe.model = model.empty() ? "resnet18" : model;
  recipe.data = std::filesystem::absolute(data).lexically_normal().string();
  while (recipe.data.size() > 1 && recipe.data.ends_with('/')) recipe.data.pop_back();
  recipe.image_size = 64;
  recipe.epochs = 10;
  recipe.batch = 32;
  recipe.lr = 0.01;
  recipe.crop = 4;
  recipe.flip = true;
  recipe.nesterov = true;
  return recipe;
}

// These values reached the accuracies in README, there with fewer epochs of CIFAR-10.
Recipe defaults(const std::string& model, const std::string& data) {
  if (is_own_data(data)) return defaults_for_own(model, data);
  const bool gray = data == "digits" || data == "mnist";
  Recipe recipe;
  recipe.model = !model.empty() ? model : gray ? "cnn" : "resnet20";
  recipe.data = data;
  if (gray) {
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

const std::vector<RecipeField>& recipe_fields() {
  using R = Recipe;
  using F = RecipeField;
  static const std::vector<RecipeField> fields = {
      F::word("model", &R::model,
              "cnn, lenet, resnet20 … resnet110, resnet18 … resnet152 (default: as the data needs)",
              models::model_names()),
      F::word("data", &R::data,
              "digits, shapes, mnist, cifar10, cifar100, a folder of pictures, "
              "or a .csv of paths and labels",
              dataset_names()),
      F::number("epochs", &R::epochs, "passes over the training set", {1, kMany}),
      F::number("batch", &R::batch, "global batch size, of all ranks together", {1, kMany}),
      F::number("accumulate", &R::accumulate,
                "batches per optimizer step, whose gradients are added", {1, kMany}),
      F::word("optimizer", &R::optimizer, "sgd, adam or adamw", {"sgd", "adam", "adamw"}),
      F::number("lr", &R::lr, "peak learning rate", {kAboveZero, kLargest, "a positive number"}),
      F::number("momentum", &R::momentum, "momentum of sgd", kFraction),
      F::flag("nesterov", &R::nesterov, "Nesterov's momentum"),
      F::number("weight_decay", &R::weight_decay, "L2 penalty (decoupled for adamw)", {0, 1000}),
      F::word("schedule", &R::schedule, "constant, step, cosine or onecycle",
              {"constant", "step", "cosine", "onecycle"}),
      F::number("warmup", &R::warmup, "epochs of linear warm-up", {0, kMany}),
      F::number("label_smoothing", &R::label_smoothing, "in [0, 1)", kFraction),
      F::number("clip_norm", &R::clip_norm, "clip the gradient's norm; 0: never",
                {0, kLargest, "zero (never) or more"}),
      F::number("crop", &R::crop, "random crop after padding by so many pixels", {0, 16}),
      F::flag("flip", &R::flip, "random horizontal flips"),
      F::number("image_size", &R::image_size,
                "one's own pictures: pixels a side, 32 to 224, to which they are resized",
                {0, static_cast<double>(kLargestSize)}),
      F::flag("skip_broken", &R::skip_broken,
              "one's own pictures: leave out those that cannot be read"),
      F::word("freeze", &R::freeze,
              "backbone: train the last layer alone, on what --init has learnt",
              {"none", "backbone"}),
      F::number("validation", &R::validation,
                "part of the training images to hold out (default: 0.1 with --keep or --patience)",
                {0, 0.9}),
      F::word("keep", &R::keep, "the weights of the last or the best epoch by validation, or both",
              {"last", "best", "both"}),
      F::number("patience", &R::patience, "stop after so many epochs without a better validation",
                {0, kMany}),
      F::number("ema", &R::ema,
                "decay of a moving average of the weights, such as 0.999, which is tested and kept "
                "instead of them; 0: none",
                kFraction),
      F::number("cutout", &R::cutout, "a random square of this size set to the mean", {0, 32}),
      F::word("dtype", &R::dtype, "fp32, bf16 or fp16, of images and activations",
              {"fp32", "bf16", "fp16"}),
      F::word("amp", &R::amp,
              "O0: all float32; O1: 16-bit activations, float32 parameters; O2: 16-bit parameters "
              "with float32 copies; O3: 16-bit parameters without",
              {"O0", "O1", "O2", "O3"}),
      F::word("conv", &R::conv,
              "the CPU's convolutions: auto (the library chooses), winograd (where it applies), "
              "direct (exact sums, slower)",
              {"auto", "direct", "winograd"}),  // in the order of ConvAlgorithm
      F::word("float32_matmul_precision", &R::float32_matmul_precision,
              "highest: float32 by float32; high, medium: "
              "by TF32 where cuBLAS and cuDNN compute; ignored elsewhere",
              {"highest", "high", "medium"}),
      F::word("provider", &R::provider,
              "native (ours), vendor (oneDNN; cuBLAS, cuDNN), fastest (measured at first use, "
              "and remembered), reference (the formulas as plain loops; "
              "slow, on the CPU alone) or auto: native on the CPU, fastest on CUDA",
              {"auto", "native", "vendor", "fastest", "reference"}),
  };
  return fields;
}

const RecipeField& recipe_field(std::string_view name) {
  const auto& fields = recipe_fields();
  return *std::find_if(fields.begin(), fields.end(),
                       [&](const RecipeField& field) { return field.name == name; });
}

std::string option_of(const std::string& name) {
  std::string words = "--" + name;
  std::replace(words.begin(), words.end(), '_', '-');
  return words;
}

std::string RecipeField::option() const { return option_of(name); }

void RecipeField::check_choice(const std::string& value) const {
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  const bool data = member == Member(&Recipe::data);
  if (data && is_own_data(value)) return;
  throw UsageError("{} is '{}', expected one of {}{}{}", option(), value, fmt::join(choices, ", "),
                   data ? ", or a folder of pictures that exists" : "",
                   did_you_mean(value, choices));
}

Recipe make_recipe(const Recipe& asked, const std::set<std::string>& given) {
  Recipe recipe = defaults(asked.model, asked.data.empty() ? "digits" : asked.data);
  if (asked.optimizer != "sgd") recipe.lr = 1e-3;
  if (asked.amp != "O0") recipe.dtype = "fp16";
  for (const RecipeField& field : recipe_fields())
    if (given.contains(field.option()) && field.name != "data")
      std::visit([&](auto member) { recipe.*member = asked.*member; }, field.member);
  if (!given.contains("--amp")) recipe.amp = recipe.dtype == "fp32" ? "O0" : "O1";

  if (recipe.chooses() && !given.contains("--validation")) recipe.validation = 0.1;
  if (recipe.optimizer != "sgd" && (given.contains("--momentum") || given.contains("--nesterov")))
    throw UsageError("--momentum and --nesterov belong to sgd; {} has moments of its own",
                     recipe.optimizer);
  if (asked.nesterov && recipe.momentum == 0)
    throw UsageError("--nesterov with --momentum 0: Nesterov's momentum needs some");
  if (recipe.momentum == 0) recipe.nesterov = false;
  check_recipe(recipe);
  return recipe;
}

std::string options_of(const Recipe& recipe, const std::string& others) {
  const Recipe usual = defaults(recipe.model, recipe.data);
  std::string words;
  for (const RecipeField& field : recipe_fields()) {
    if ((others + ' ').find(field.option() + ' ') != std::string::npos) continue;
    const auto add = [&](auto member) {
      const bool always = field.name == "data" || field.name == "model";
      if (!always && recipe.*member == usual.*member) return;
      if constexpr (std::is_same_v<decltype(member), bool Recipe::*>)
        words += recipe.*member ? ' ' + field.option() : " --no-" + field.option().substr(2);
      else
        words += fmt::format(" {} {}", field.option(), shell_word(fmt::to_string(recipe.*member)));
    };
    std::visit(add, field.member);
  }
  return words.substr(1);
}

void check_recipe(const Recipe& r) {
  for (const RecipeField& field : recipe_fields())
    std::visit([&](auto member) { check_value(field, r.*member); }, field.member);
  if (r.chooses() && r.validation == 0)
    throw UsageError(
        "--keep best and --patience go by images that are held out, and --validation is 0; the "
        "test set chooses nothing");
  if (!is_own_data(r.data) && (r.image_size != 0 || r.skip_broken))
    throw UsageError(
        "--image-size and --skip-broken are for pictures of one's own; "
        "{} has its images as they are",
        r.data);
  if (is_own_data(r.data) && r.image_size < kLeastSize)
    throw UsageError("--image-size is {}, expected {} to {}", r.image_size, kLeastSize,
                     kLargestSize);
  if ((r.amp == "O0") != (r.dtype == "fp32"))
    throw UsageError("--amp {} and --dtype {} exclude each other: O0 is fp32, the others are not",
                     r.amp, r.dtype);
  if (r.warmup > 0 && r.schedule == "onecycle")
    throw UsageError(
        "--warmup goes with --schedule constant, step or cosine; "
        "onecycle, the default, warms up by itself");
}

optim::Schedule learning_rate(const Recipe& recipe, int64_t steps_per_epoch) {
  const auto warmup = std::llround(recipe.warmup * static_cast<double>(steps_per_epoch));
  const int64_t total = std::max<int64_t>(recipe.epochs * steps_per_epoch - warmup, 2);
  optim::Schedule schedule = [](double lr, int64_t) { return lr; };
  if (recipe.schedule == "onecycle")
    schedule = optim::OneCycleLR{.max_lr = recipe.lr, .total_steps = total};
  if (recipe.schedule == "cosine") schedule = optim::CosineAnnealingLR{.t_max = total};
  if (recipe.schedule == "step")
    schedule = optim::MultiStepLR{.milestones = {total / 2, total * 3 / 4}};
  if (warmup == 0) return schedule;
  const optim::LinearLR rise{.start_factor = 1.0 / static_cast<double>(warmup),
                             .total_iters = warmup};
  return optim::SequentialLR{.schedules = {rise, schedule}, .milestones = {warmup}};
}

DType dtype_named(const std::string& name) {
  recipe_field("dtype").check_choice(name);
  return name == "bf16" ? DType::BFloat16 : name == "fp16" ? DType::Float16 : DType::Float32;
}

ConvAlgorithm conv_algorithm_named(const std::string& name) {
  const RecipeField& field = recipe_field("conv");
  field.check_choice(name);
  return static_cast<ConvAlgorithm>(std::find(field.choices.begin(), field.choices.end(), name) -
                                    field.choices.begin());
}

std::optional<Provider> provider_named(const std::string& name, Device device) {
  recipe_field("provider").check_choice(name);
  if (name == ringgrad::name(Provider::Reference) && !device.is_cpu())
    throw UsageError(
        "--provider {} does not go with --device {}: its kernels run on the CPU; expected auto, "
        "native, vendor or fastest, or --device cpu",
        name, str(device));
  for (const Provider provider :
       {Provider::Native, Provider::Vendor, Provider::Reference, Provider::Fastest})
    if (name == ringgrad::name(provider)) return provider;
  return {};
}

nlohmann::json to_json(const Recipe& recipe) {
  nlohmann::json json;
  for (const RecipeField& field : recipe_fields())
    std::visit([&](auto member) { json[field.name] = recipe.*member; }, field.member);
  return json;
}

Recipe recipe_from_json(const nlohmann::json& json, OtherVersion& other) {
  Recipe recipe;
  for (const char* key : {"model", "data"})
    if (!json.is_object() || !json.contains(key))
      throw UsageError("the recipe lacks what no run is without: {}", key);
  for (const RecipeField& field : recipe_fields())
    std::visit(
        [&](auto member) {
          recipe.*member = read_setting(json, field.name, recipe.*member, other);
        },
        field.member);
  note_unknown(json, to_json(recipe), "recipe.", other);
  return recipe;
}

std::string summary(const Recipe& r) {
  std::string text = fmt::format("{} lr {} {}", r.optimizer, r.lr, r.schedule);
  if (r.optimizer == "sgd") {
    const char* nesterov = r.nesterov ? " (Nesterov)" : r.momentum == 0 ? " (so no Nesterov)" : "";
    text += fmt::format(" momentum {}{}", r.momentum, nesterov);
  }
  if (r.weight_decay > 0) text += fmt::format(" weight decay {}", r.weight_decay);
  if (r.warmup > 0) text += fmt::format(" warm-up {} epoch{}", r.warmup, r.warmup == 1 ? "" : "s");
  if (r.label_smoothing > 0) text += fmt::format(" label smoothing {}", r.label_smoothing);
  if (r.clip_norm > 0) text += fmt::format(" clip {}", r.clip_norm);
  if (r.crop > 0) text += fmt::format(" crop {}", r.crop);
  if (r.flip) text += " flip";
  if (r.cutout > 0) text += fmt::format(" cutout {}", r.cutout);
  if (r.freeze != "none") text += fmt::format(" {} frozen", r.freeze);
  if (r.validation > 0) text += fmt::format(" validation {}", r.validation);
  if (r.keep != "last") text += fmt::format(" keep {}", r.keep);
  if (r.patience > 0) text += fmt::format(" patience {}", r.patience);
  if (r.ema > 0) text += fmt::format(" ema {}", r.ema);
  if (r.dtype != "fp32") text += fmt::format(" {} ({})", r.dtype, r.amp);
  if (r.conv != "auto") text += fmt::format(" conv {}", r.conv);
  if (r.float32_matmul_precision != "highest")
    text += fmt::format(" float32 {}", r.float32_matmul_precision);
  if (r.provider != "auto") text += fmt::format(" provider {}", r.provider);
  return text;
}

}  // namespace ringgrad::program
