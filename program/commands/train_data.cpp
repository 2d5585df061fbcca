#include "ringgrad/program/commands/train_data.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/program/run/saved_model.h"

namespace ringgrad::program {

Data read_data(RunConfig& config, const std::string& init, bool keep) {
  const Recipe& recipe = config.recipe;
  if (!is_own_data(recipe.data))
    return {load_dataset(recipe.data, Split::Train, config.data_dir),
            load_dataset(recipe.data, Split::Test, config.data_dir),
            {}};
  OwnData own = load_own_data(
      recipe.data,
      {.image_size = recipe.image_size, .skip_broken = recipe.skip_broken, .keep = keep},
      config.data_dir);
  const bool goes_on = !config.facts.digest.empty();
  CHECK_AS(DataError, !goes_on || config.facts.digest == own.facts.digest,
           "train: the pictures of ", recipe.data,
           " are not those that the run began with: files were added, removed or changed; "
           "bring them back, or begin anew with --init");
  if (!goes_on) {
    config.facts = own.facts;
    const ImageTransform of_init =
        init.empty() ? ImageTransform() : normalization_of_weights(init, config.facts.channels);
    if (!of_init.mean.empty()) {
      config.facts.mean = of_init.mean;
      config.facts.std = of_init.std;
    }
  }
  return {std::move(own.train), std::move(own.test), own.notes};
}

std::string name_for_directory(const DataFacts& facts) {
  std::string name = facts.name;
  for (char& c : name)
    if (!is_letter(c) && !is_digit(c) && c != '-' && c != '.') c = '_';
  return name;
}

}  // namespace ringgrad::program
