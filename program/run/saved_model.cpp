#include "ringgrad/program/run/saved_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/load_weights.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/weights/torch_file.h"

namespace ringgrad::program {
namespace fs = std::filesystem;

namespace {

// Returns the metadata that describe the model. A checkpoint has them in its recipe.
Metadata described(const Metadata& metadata) {
  const auto progress = metadata.find("progress");
  if (progress == metadata.end()) return metadata;
  const auto json = json_if_whole(progress->second);
  Metadata about = metadata;
  if (!json.is_object() || !json.contains("recipe")) return about;
  for (const char* key : {"model", "data"})
    if (const auto found = json["recipe"].find(key);
        found != json["recipe"].end() && found->is_string())
      about[key] = *found;
  if (const auto ema = json["recipe"].find("ema"); ema != json["recipe"].end() && *ema > 0)
    about["ema"] = ema->dump();
  return about;
}

// Returns the weights of a file that are to be evaluated: a checkpoint may have an average, too.
nn::SafetensorsFile evaluated_weights(const fs::path& file) {
  nn::SafetensorsFile saved = nn::load_weights(file);
  if (saved.metadata.contains("progress") && described(saved.metadata).contains("ema"))
    saved.tensors = nn::without_prefix(nn::load_safetensors(file).tensors, kAverageInFile);
  return saved;
}

fs::path weights_of(const std::string& path) {
  if (!fs::is_directory(path)) {
    CHECK_AS(DataError, fs::exists(path), "load: there is no ", path);
    refuse_torch_file(path);
    return path;
  }
  const RunDirectory run = RunDirectory::open(path);
  CHECK_AS(DataError, fs::exists(run.model()), "load: there is no ", run.model().string(),
           fs::exists(run.checkpoint())
               ? "; the run has not finished: continue it with " +
                     program_command("train --resume " + shell_word(path))
               : "; the run stopped before its first checkpoint, or its files were removed; it can "
                 "be trained anew");
  return run.model();
}

// With such weights every answer would be the same, or there would be none.
void check_usable(const nn::NamedTensors& weights, const fs::path& file) {
  for (const auto& [name, tensor] : weights) {
    if (!is_floating(tensor.dtype())) continue;
    CHECK_AS(DataError, std::isfinite(sum(to(tensor, DType::Float64)).item<double>()),
             "load: ", file.string(), ": ", name,
             " holds values that are not finite: the run that saved it diverged, "
             "or the file is damaged");
    const auto values =
        name.ends_with("running_var") ? to_vector<double>(tensor) : std::vector<double>();
    CHECK_AS(DataError, std::none_of(values.begin(), values.end(), [](double v) { return v < 0; }),
             "load: ", file.string(), ": ", name, " holds negative variances: the file is damaged");
  }
}

std::set<std::string> names_of(const nn::NamedTensors& state) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state) names.insert(name);
  return names;
}

// The command that trains a last layer for other classes.
std::string new_head_for(const std::string& data, const fs::path& file) {
  return program_command(fmt::format("train --data {} --init {} --freeze backbone",
                                     shell_word(data), shell_word(file.string())));
}

void give(nn::Module& module, const nn::SafetensorsFile& saved, const fs::path& file,
          const std::string& what) {
  check_usable(saved.tensors, file);
  for (const std::string& name : saved.skipped)
    message("note    {}: {} was left out, its dtype is none of ringgrad's", file.string(), name);
  try {
    if (module.load_state_dict(saved.tensors).stripped_module_prefix)
      message(
          "note    {}: all names begin with \"module.\" (PyTorch's "
          "DistributedDataParallel), which was left out",
          file.string());
  } catch (const Error& error) {
    const bool same_names = names_of(saved.tensors) == names_of(module.state_dict());
    const std::string fits = same_names ? "" : fitting_model(saved.tensors);
    if (!fits.empty())
      throw DataError(fmt::format("load: {} does not fit {}, but {}: --model {}", file.string(),
                                  what, fits, fits));
    const std::string help =
        same_names ? ". Where only the classes differ: " + new_head_for("FOLDER", file) : "";
    throw DataError(
        fmt::format("load: {} does not fit {}: {}{}", file.string(), what, error.what(), help));
  }
}

}  // namespace

std::string fitting_model(const nn::NamedTensors& weights) {
  const std::set<std::string> wanted = names_of(weights);
  const bool residual = wanted.contains("layer1.0.conv1.weight");
  for (const std::string& name : models::model_names())
    if (name.starts_with("resnet") == residual &&
        names_of(models::make_model(name, models::usual_images(name))->state_dict()) == wanted)
      return name;
  return "";
}

ImageTransform imagenet_normalization() {
  return {.mean = {0.485f, 0.456f, 0.406f}, .std = {0.229f, 0.224f, 0.225f}};
}

std::string head_of(const nn::Module& module) {
  const std::string last = module.named_parameters().back().first;
  return last.substr(0, last.rfind('.'));
}

std::shared_ptr<nn::Module> make_model_for(const std::string& model, const DataFacts& facts) {
  recipe_field("model").check_choice(model);
  return models::make_model(model, {.in_channels = facts.channels,
                                    .num_classes = static_cast<int64_t>(facts.classes.size()),
                                    .image_size = facts.image_size});
}

std::string sha256_of_state(const nn::Module& module) {
  Sha256 hash;
  for (const auto& [name, tensor] : module.state_dict()) {
    const Tensor values = contiguous(to(tensor, Device()));
    hash.update({reinterpret_cast<const uint8_t*>(name.c_str()), name.size() + 1});
    hash.update({static_cast<const uint8_t*>(values.raw_data()), values.nbytes()});
  }
  return hash.hex();
}

void save_model(const fs::path& path, const nn::Module& model, const Recipe& recipe,
                const DataFacts& facts) {
  Metadata metadata = to_metadata(facts);
  metadata["model"] = recipe.model;
  metadata["data"] = recipe.data;
  if (recipe.ema > 0) metadata["ema"] = fmt::to_string(recipe.ema);
  nn::save_safetensors(path, model.state_dict(), metadata);
}

namespace {

void check_stem(const nn::NamedTensors& weights, const nn::Module& module, const fs::path& file) {
  const auto side = [](const nn::NamedTensors& state) {
    for (const auto& [name, tensor] : state)
      if (name.ends_with("conv1.weight") && name.find("layer") == std::string::npos &&
          tensor.dim() == 4)
        return tensor.size(2);
    return int64_t{0};
  };
  if (side(weights) == 7 && side(module.state_dict()) == 3)
    throw DataError(fmt::format(
        "load: {} begins with a convolution of 7×7, as torchvision's networks do and those here "
        "for images of 64 pixels or more: --image-size 64",
        file.string()));
}

// Weights of another number of classes do for all but the last layer.
void keep_own_head(nn::NamedTensors& weights, const nn::Module& module, const fs::path& file) {
  const std::string head = head_of(module);
  for (const auto& [own_name, own] : module.named_parameters()) {
    if (!own_name.starts_with(head + ".")) continue;
    for (auto& [name, given] : weights) {
      if (!name.ends_with(own_name) || given.dim() != own.dim() || given.size(0) == own.size(0))
        continue;
      if (own.dim() == 2)
        message(
            "note    {} has {} classes; its last layer ({}) is replaced by a new one for these {}",
            file.string(), given.size(0), head, own.size(0));
      given = own;
    }
  }
}

}  // namespace

void load_weights(nn::Module& module, const std::string& called) {
  const fs::path file = weights_of(find_run(called));
  nn::SafetensorsFile saved = evaluated_weights(file);
  check_stem(saved.tensors, module, file);
  keep_own_head(saved.tensors, module, file);
  give(module, saved, file, "this model");
}

ImageTransform normalization_of_weights(const std::string& called, int64_t channels) {
  const Metadata about = described(nn::load_weights(weights_of(find_run(called))).metadata);
  const ImageTransform used = tells_facts(about) ? normalization_of(facts_from_metadata(about, ""))
                                                 : imagenet_normalization();
  return static_cast<int64_t>(used.mean.size()) == channels ? used : ImageTransform();
}

namespace {

// Pictures of one's own have the classes and the normalisation that the weights were trained for.
DataFacts facts_for(const std::string& data, const Metadata& about, const fs::path& file) {
  if (!is_own_data(data)) return facts_of_dataset(data);
  try {
    return facts_from_metadata(about, fs::path(data).stem().string());
  } catch (const DataError& error) {
    throw DataError(fmt::format(
        "load: {} does not say which classes it knows: {}. A new last layer for those of "
        "{} is trained by: {}",
        file.string(), error.what(), data, new_head_for(data, file)));
  }
}

}  // namespace

SavedModel load_model(const std::string& called, const std::string& model,
                      const std::string& data) {
  const std::string path = find_run(called);
  const fs::path file = weights_of(path);
  const nn::SafetensorsFile saved = evaluated_weights(file);
  const Metadata about = described(saved.metadata);
  if (const auto ema = about.find("ema"); ema != about.end())
    message("note    {}: its weights are moving averages of those in training, by --ema {}",
            file.string(), ema->second);
  const auto said = [&](const char* key, const std::string& given) {
    if (!given.empty()) return given;
    const auto found = about.find(key);
    if (found == about.end())
      throw UsageError("{0} does not say which {1} it is for; name it with --{1}", file.string(),
                       key);
    return found->second;
  };
  SavedModel loaded{nullptr, said("model", model), said("data", data), "", file.string(), {},
                    false};
  recipe_field("data").check_choice(loaded.data);
  loaded.facts = facts_for(loaded.data, about, file);
  if (is_own_data(loaded.data)) loaded.data = fs::absolute(loaded.data).lexically_normal();
  if (fs::is_directory(path)) {
    const RunConfig config = read_config(RunDirectory::open(path));
    for (const std::string& sentence : sentences(config.other, path + "/config.json"))
      message("note    {}", sentence);
    loaded.data_dir = config.data_dir;
    loaded.skip_broken = config.recipe.skip_broken;
  }
  loaded.module = make_model_for(loaded.model, loaded.facts);
  give(*loaded.module, saved, file, loaded.model + " for " + loaded.data);
  return loaded;
}

}  // namespace ringgrad::program
