#include "ringgrad/models/program/run/run_config.h"

#include <limits>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ringgrad/core/error.h"
#include "ringgrad/models/program/console/exit_code.h"

namespace ringgrad::program {

namespace {

// As the file has it: what is no whole number would be rounded, or become one.
template <class T>
T whole(const nlohmann::json& json, const char* key, uint64_t low, uint64_t high) {
  const nlohmann::json& value = json.at(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < low || value.get<uint64_t>() > high)
    throw UsageError(fmt::format("{} is {}, expected a whole number from {} to {}", key, value.dump(), low, high));
  return value.get<T>();
}

}  // namespace

nlohmann::json to_json(const RunConfig& config) {
  nlohmann::json json = {{"version", RINGGRAD_VERSION},
                         {"recipe", to_json(config.recipe)},
                         {"data_dir", config.data_dir},
                         {"seed", config.seed}};
  if (const auto& d = config.division)
    json["division"] = {{"parallel", d->parallel}, {"ranks", d->ranks}, {"sync_bn", d->sync_bn}, {"device", d->device}};
  return json;
}

RunConfig read_config(const RunDirectory& run) {
  const auto damaged = [&](const char* how, const std::exception& error) {
    return DataError(fmt::format("run: {}/config.json {}{}", run.path().string(), how, error.what()));
  };
  const nlohmann::json json = run.read_config();
  try {
    RunConfig config{recipe_from_json(json.at("recipe")),
                     json.at("data_dir"),
                     whole<uint64_t>(json, "seed", 0, std::numeric_limits<uint64_t>::max()),
                     {}};
    check_recipe(config.recipe);
    if (json.contains("division")) {
      const nlohmann::json& d = json["division"];
      config.division =
          DivisionOptions{d.at("parallel"), whole<int>(d, "ranks", 1, kMaxRanks), d.at("sync_bn"), d.at("device")};
      TrainOptions options;
      options.parallel = config.division->parallel;
      options.ranks = config.division->ranks;
      options.sync_bn = config.division->sync_bn;
      options.device = config.division->device;
      check_parallel_options(options);
      Device(config.division->device);
    }
    return config;
  } catch (const nlohmann::json::exception& error) {
    throw damaged("lacks what a run needs: ", error);
  } catch (const UsageError& error) {
    throw damaged("cannot be: ", error);
  } catch (const DeviceError& error) {
    throw damaged("cannot be: ", error);
  }
}

}  // namespace ringgrad::program
