#include "ringgrad/models/program/run/saved_model.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/run_directory.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/checkpoint.h"

namespace ringgrad::program {
namespace fs = std::filesystem;

namespace {

// What a file's metadata says about its model; a checkpoint says it in the recipe.
std::map<std::string, std::string> described(const std::map<std::string, std::string>& metadata) {
  const auto progress = metadata.find("progress");
  if (progress == metadata.end()) return metadata;
  const auto json = nlohmann::json::parse(progress->second, nullptr, false);
  std::map<std::string, std::string> about;
  if (!json.is_object() || !json.contains("recipe")) return about;
  for (const char* key : {"model", "data"})
    if (const auto found = json["recipe"].find(key); found != json["recipe"].end() && found->is_string())
      about[key] = *found;
  return about;
}

fs::path weights_of(const std::string& path) {
  if (!fs::is_directory(path)) {
    CHECK_AS(DataError, fs::exists(path), "load: there is no ", path);
    return path;
  }
  const RunDirectory run = RunDirectory::open(path);
  CHECK_AS(DataError, fs::exists(run.model()), "load: there is no ", run.model().string(),
           fs::exists(run.checkpoint())
               ? "; the run has not finished: continue it with " + program_command("train --resume " + path)
               : "; the run stopped before its first checkpoint, and can be trained anew");
  return run.model();
}

// With such weights every answer would be the same one, or none.
void check_usable(const nn::NamedTensors& weights, const fs::path& file) {
  for (const auto& [name, tensor] : weights) {
    if (!is_floating(tensor.dtype())) continue;
    CHECK_AS(DataError, std::isfinite(sum(to(tensor, DType::Float64)).item<double>()), "load: ", file.string(), ": ",
             name, " holds values that are not finite: the run that saved it diverged, or the file is damaged");
    const auto values = name.ends_with("running_var") ? to_vector<double>(tensor) : std::vector<double>();
    CHECK_AS(DataError, std::none_of(values.begin(), values.end(), [](double v) { return v < 0; }),
             "load: ", file.string(), ": ", name, " holds negative variances: the file is damaged");
  }
}

void give(nn::Module& module, const nn::SafetensorsFile& saved, const fs::path& file, const std::string& what) {
  check_usable(saved.tensors, file);
  try {
    if (module.load_state_dict(saved.tensors).stripped_module_prefix)
      message("note    {}: all names begin with \"module.\" (PyTorch's DistributedDataParallel), which was left out",
              file.string());
  } catch (const Error& error) {
    throw DataError(fmt::format("load: {} does not fit {}: {}", file.string(), what, error.what()));
  }
}

}  // namespace

std::shared_ptr<nn::Module> make_model_for(const std::string& model, const std::string& data) {
  recipe_field("model").check_choice(model);
  recipe_field("data").check_choice(data);
  const DatasetInfo& info = dataset_info(data);
  return models::make_model(model, {.in_channels = info.channels,
                                    .num_classes = static_cast<int64_t>(info.classes.size()),
                                    .image_size = info.image_size});
}

std::string sha256_of_state(const nn::Module& module) {
  Sha256 hash;
  for (const auto& [name, tensor] : module.state_dict()) {
    const Tensor values = contiguous(to(tensor, Device()));
    hash.update({reinterpret_cast<const uint8_t*>(name.c_str()), name.size() + 1});
    hash.update({static_cast<const uint8_t*>(values.raw_data()),
                 static_cast<size_t>(values.numel()) * itemsize(values.dtype())});
  }
  return hash.hex();
}

void save_model(const fs::path& path, const nn::Module& model, const Recipe& recipe) {
  const DatasetInfo& info = dataset_info(recipe.data);
  nn::save_safetensors(path, model.state_dict(),
                       {{"model", recipe.model},
                        {"data", recipe.data},
                        {"input_size", fmt::format("[{0}, {1}, {1}]", info.channels, info.image_size)},
                        {"mean", fmt::format("[{}]", fmt::join(info.mean, ", "))},
                        {"std", fmt::format("[{}]", fmt::join(info.std, ", "))},
                        {"classes", nlohmann::json(info.classes).dump()}});
}

void load_weights(nn::Module& module, const std::string& called) {
  const std::string path = find_run(called);
  const fs::path file = weights_of(path);
  give(module, nn::load_weights(file), file, "this model");
}

SavedModel load_model(const std::string& called, const std::string& model, const std::string& data) {
  const std::string path = find_run(called);
  const fs::path file = weights_of(path);
  const nn::SafetensorsFile saved = nn::load_weights(file);
  const std::map<std::string, std::string> about = described(saved.metadata);
  const auto said = [&](const char* key, const std::string& given) {
    if (!given.empty()) return given;
    const auto found = about.find(key);
    if (found == about.end())
      throw UsageError("{0} does not say which {1} it is for; name it with --{1}", file.string(), key);
    return found->second;
  };
  SavedModel loaded{nullptr, said("model", model), said("data", data), "", file.string()};
  if (fs::is_directory(path)) loaded.data_dir = read_config(RunDirectory::open(path)).data_dir;
  loaded.module = make_model_for(loaded.model, loaded.data);
  give(*loaded.module, saved, file, loaded.model + " for " + loaded.data);
  return loaded;
}

}  // namespace ringgrad::program
