// How a model is trained on a data set by default. Every value can be set on the command line, and the whole recipe is
// printed and saved with the run.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/core/dtype.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/models/program/run/options.h"
#include "ringgrad/nn/optim/lr_scheduler.h"

namespace ringgrad::program {

struct Recipe {
  std::string model, data;
  int64_t epochs = 4;
  int64_t batch = 128;
  std::string optimizer = "sgd";
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 5e-4;
  std::string schedule = "onecycle";
  double warmup = 0;  // epochs
  double label_smoothing = 0;
  double clip_norm = 0;
  int64_t crop = 0, cutout = 0;
  bool flip = false;
  std::string dtype = "fp32";     // of images and activations; or bf16, fp16
  std::string amp = "O0";         // what else has that dtype; see mixed_precision.h
  std::string conv = "auto";      // see core/kernels/geometry.h
  std::string provider = "auto";  // or native, vendor, fastest; see core/kernels/kernel.h
};

// The defaults for the model and data with the options laid over them. Throws UsageError, with a suggestion, on a name
// or a value that cannot be.
Recipe make_recipe(const TrainOptions& options);

// The learning rate as a function of the peak (recipe.lr) and the steps done. The warm-up rises from nothing to the
// peak; what follows counts from there.
optim::Schedule learning_rate(const Recipe& recipe, int64_t steps_per_epoch);

// Throws UsageError on a name or value that cannot be, also in a recipe from a file.
void check_recipe(const Recipe& recipe);

// Throws UsageError, with a suggestion, where there is no such model.
void check_model(const std::string& name);
void check_data(const std::string& name);
// What its --dtype, --conv and --provider stand for. Throw UsageError, in the option's name.
DType dtype_named(const std::string& name);
ConvAlgorithm conv_algorithm_named(const std::string& name);
std::optional<Provider> provider_named(const std::string& name);  // "auto": nullopt

nlohmann::json to_json(const Recipe& recipe);
// Throws UsageError where a whole number is not one, and nlohmann's exceptions where something lacks or is of another
// type.
Recipe recipe_from_json(const nlohmann::json& json);
std::string summary(const Recipe& recipe);  // one line

}  // namespace ringgrad::program
