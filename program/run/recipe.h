// Recipe: the hyperparameters with which a model is trained on a data set, their defaults, and
// their ranges. All of them can be set on the command line. The whole recipe is printed, and saved
// with the run.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/nn/optim/lr_scheduler.h"
#include "ringgrad/program/run/other_version.h"

namespace ringgrad::program {

struct Recipe {
  std::string model;
  std::string data;
  int64_t epochs = 4;
  // The batch of all ranks together.
  int64_t batch = 128;
  // The number of batches in a step.
  int64_t accumulate = 1;
  std::string optimizer = "sgd";
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 5e-4;
  std::string schedule = "onecycle";
  // The length of the warm-up in epochs.
  double warmup = 0;
  double label_smoothing = 0;
  double clip_norm = 0;
  int64_t crop = 0;
  int64_t cutout = 0;
  bool flip = false;
  // Pixels a side, to which pictures of one's own are resized; 0: a data set's.
  int64_t image_size = 0;
  // For pictures of one's own.
  bool skip_broken = false;
  // Or backbone: all but the last layer stays as --init has it.
  std::string freeze = "none";
  // The part of the training images that is held out, by which `keep` and `patience` go.
  double validation = 0;
  // Keeps the weights of the last epoch, of the best by validation, or both.
  std::string keep = "last";
  // Training stops after this number of epochs without a better one; 0: never.
  int64_t patience = 0;
  // The decay of a moving average of the weights, which is tested and kept; 0: none.
  double ema = 0;

  bool chooses() const { return keep != "last" || patience > 0; }
  // The dtype of images and activations; bf16 and fp16 are possible, too.
  std::string dtype = "fp32";
  // The level, which says what else has that dtype; see mixed_precision.h.
  std::string amp = "O0";
  // See core/kernels/geometry.h.
  std::string conv = "auto";
  // Or native, vendor, reference, fastest; see core/kernels/kernel.h.
  std::string provider = "auto";

  std::string float32_matmul_precision = "highest";  // see core/kernels/float32_precision.h

  // Images whose mean loss a step goes down.
  int64_t step_batch() const { return batch * accumulate; }
};

// "--label-smoothing" for "label_smoothing", as JSON has it.
std::string option_of(const std::string& name);

// A hyperparameter is declared in two places: in Recipe, and as a row of the table that
// recipe_fields() returns. The command line and its help, the checks, config.json and checkpoints,
// and the comparison of launched ranks go by the table.
struct RecipeField {
  using Member =
      std::variant<int64_t Recipe::*, double Recipe::*, bool Recipe::*, std::string Recipe::*>;
  using Names = std::vector<std::string>;
  struct Range {
    double low = 0;
    double high = 0;
    const char* words = nullptr;  // instead of "low to high"
  };

  std::string name;  // in JSON
  Member member;
  std::string help;
  Range range;    // the range of a number
  Names choices;  // the choices of a word

  static RecipeField number(std::string name, Member of, std::string help, Range range) {
    return {std::move(name), of, std::move(help), range, {}};
  }
  static RecipeField word(std::string name, std::string Recipe::*of, std::string help,
                          Names choices) {
    return {std::move(name), of, std::move(help), {}, std::move(choices)};
  }
  static RecipeField flag(std::string name, bool Recipe::*of, std::string help) {
    return {std::move(name), of, std::move(help), {}, {}};
  }
  std::string option() const;  // "--label-smoothing"
  // Throws UsageError, with the option's name and a suggestion, if this is none of the choices.
  // Data may also be own pictures, by their path.
  void check_choice(const std::string& value) const;
};
const std::vector<RecipeField>& recipe_fields();
const RecipeField& recipe_field(std::string_view name);  // REQUIRES: there is one

// The defaults for the model and data, with those of `asked` in their place whose options are
// `given`. Throws UsageError on a name or a value that cannot be.
Recipe make_recipe(const Recipe& asked, const std::set<std::string>& given);

// Returns the options that lead to this recipe: "--data digits --model cnn --batch 64". It leaves
// out those in `others`, which are given beside them. Special values are quoted for a shell.
std::string options_of(const Recipe& recipe, const std::string& others);

// Throws UsageError on a name or value that cannot be, also in a recipe from a file.
void check_recipe(const Recipe& recipe);

// Returns the learning rate as a function of the peak (recipe.lr) and the steps done. The warm-up
// rises from nothing to the peak; the rest counts from there.
optim::Schedule learning_rate(const Recipe& recipe, int64_t steps_per_epoch);

// Return the meaning of --dtype, --conv and --provider. Throw UsageError, which names the option.
DType dtype_named(const std::string& name);
ConvAlgorithm conv_algorithm_named(const std::string& name);
// "auto" gives nullopt. Also throws UsageError if no kernel of this provider runs on the device.
std::optional<Provider> provider_named(const std::string& name, Device device);

nlohmann::json to_json(const Recipe& recipe);
// Throws UsageError if a value has another type, or if model or data is missing. Any other missing
// setting is taken as it was before the setting existed.
Recipe recipe_from_json(const nlohmann::json& json, OtherVersion& other);
std::string summary(const Recipe& recipe);  // one line

}  // namespace ringgrad::program
