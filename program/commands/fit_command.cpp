// `ringgrad fit`: the largest batch that so much memory holds, by each way to train that saves
// some.
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/fits.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {
namespace {

int fit(const FitOptions& options) {
  recipe_field("model").check_choice(options.model);
  recipe_field("optimizer").check_choice(options.optimizer);
  const std::vector<Fit> fits = measured_fits(options);
  result("{}, {}: the largest batch in {} for each process", options.model, options.optimizer,
         megabytes(static_cast<double>(options.memory)));
  for (const std::string& line : lines_of(fits)) result("{}", line);
  nlohmann::json rows = nlohmann::json::array();
  for (const Fit& way : fits)
    rows.push_back({{"options", way.options},
                    {"batch", way.batch},
                    {"predicted_bytes", way.predicted},
                    {"measured_bytes", way.measured}});
  result("With --accumulate K a step has K times as many images in the same memory.");
  print_json({{"model", options.model}, {"memory", options.memory}, {"ways", rows}});
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
