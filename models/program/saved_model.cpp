#include "models/program/saved_model.h"

#include <algorithm>

#include "core/check.h"
#include "data/catalog.h"
#include "models/program/exit_code.h"
#include "models/program/run_directory.h"
#include "models/program/suggest.h"
#include "models/registry.h"
#include "nn/checkpoint.h"

namespace ringgrad::program {
namespace fs = std::filesystem;

std::shared_ptr<nn::Module> make_model_for(const std::string& model, const std::string& data) {
  const auto names = models::model_names();
  if (std::find(names.begin(), names.end(), model) == names.end())
    throw UsageError("no model '" + model + "'" + did_you_mean(model, names));
  const DatasetInfo& info = dataset_info(data);
  return models::make_model(model, {.in_channels = info.channels,
                                    .num_classes = static_cast<int64_t>(info.classes.size()),
                                    .image_size = info.height});
}

void save_model(const fs::path& path, const nn::Module& model, const Recipe& recipe) {
  nn::save_safetensors(path, model.state_dict(), {{"model", recipe.model}, {"data", recipe.data}});
}

SavedModel load_model(const std::string& path, const std::string& model, const std::string& data) {
  const fs::path file = fs::is_directory(path) ? RunDirectory::open(path).model() : fs::path(path);
  CHECK_AS(
      DataError, fs::exists(file), "load: there is no ", file.string(),
      fs::is_directory(path) ? "; the run has not finished: continue it with ringgrad train --resume " + path : "");
  const nn::SafetensorsFile saved = nn::load_safetensors(file);
  const auto said = [&](const char* key, const std::string& given) {
    if (!given.empty()) return given;
    const auto found = saved.metadata.find(key);
    if (found == saved.metadata.end())
      throw UsageError(file.string() + " does not say which " + key + " it is for; name it with --" + key);
    return found->second;
  };
  SavedModel loaded{nullptr, said("model", model), said("data", data)};
  loaded.module = make_model_for(loaded.model, loaded.data);
  loaded.module->load_state_dict(saved.tensors);
  return loaded;
}

}  // namespace ringgrad::program
