// config.json: what is fixed for the whole life of a run, over any number of resumptions, and how its work was divided
// when it began.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/models/program/run/parallel_options.h"
#include "ringgrad/models/program/run/recipe.h"
#include "ringgrad/models/program/run/run_directory.h"

namespace ringgrad::program {

struct RunConfig {
  Recipe recipe;
  std::string data_dir;
  uint64_t seed = 1;
  std::optional<DivisionOptions> division;  // none: of a run from before it was kept
};

nlohmann::json to_json(const RunConfig& config);
// Throws DataError, naming the file, where something lacks or cannot be.
RunConfig read_config(const RunDirectory& run);

}  // namespace ringgrad::program
