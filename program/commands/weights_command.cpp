// `ringgrad weights`: weights that others have trained, as files that `--init`, `predict` and
// `eval` take.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/datasets/data_place.h"
#include "ringgrad/data/datasets/download.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/run/saved_model.h"
#include "ringgrad/program/weights/torch_file.h"

namespace ringgrad::program {
namespace fs = std::filesystem;
namespace {

// torchvision's first weights for ImageNet (IMAGENET1K_V1), as it publishes them: a file's name has
// the beginning of its SHA-256.
struct Pretrained {
  const char* name;
  const char* file;
  uint64_t bytes;
  const char* sha256;
  const char* accuracy;  // of one view of each picture, as published
};
constexpr Pretrained kPretrained[] = {
    {"resnet18", "resnet18-f37072fd.pth", 46'830'571,
     "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec", "69.76 %"},
    {"resnet34", "resnet34-b627a593.pth", 87'319'819,
     "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f", "73.31 %"},
    {"resnet50", "resnet50-0676ba61.pth", 102'530'333,
     "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a", "76.13 %"},
};
constexpr const char* kServer = "https://download.pytorch.org/models/";

struct WeightsOptions {
  std::string name;
  std::string file;
  std::string out;
  std::string key;
  std::string classes;
  std::string data_dir;
};

fs::path folder_for(const std::string& data_dir) {
  return fs::path(data_place(data_dir).directory) / "weights";
}
fs::path converted_file(const Pretrained& weights, const fs::path& folder) {
  return folder / (std::string(weights.name) + ".safetensors");
}

const Pretrained& named(const std::string& name) {
  std::vector<std::string> names;
  for (const Pretrained& weights : kPretrained) {
    if (weights.name == name) return weights;
    names.push_back(weights.name);
  }
  throw UsageError("no weights '{}' among {}{}; what lies in a file: {}", name,
                   fmt::join(names, ", "), did_you_mean(name, names),
                   program_command("weights convert FILE.pth"));
}

int list_weights(const WeightsOptions& options) {
  const fs::path folder = folder_for(options.data_dir);
  nlohmann::json report = nlohmann::json::array();
  result("weights lie in {}", folder.string());
  for (const Pretrained& weights : kPretrained) {
    const fs::path file = converted_file(weights, folder);
    const bool here = fs::exists(file);
    result("{:<9} ImageNet, 1000 classes, 224×224×3  {} right  {:>8}  {}", weights.name,
           weights.accuracy, human_bytes(static_cast<int64_t>(weights.bytes)),
           here ? "here" : program_command(fmt::format("weights get {}", weights.name)));
    report.push_back({{"name", weights.name},
                      {"bytes", weights.bytes},
                      {"file", here ? nlohmann::json(file.string()) : nlohmann::json()}});
  }
  print_json({{"folder", folder.string()}, {"weights", report}});
  return kOk;
}

// ---- from PyTorch's file to ours
// ------------------------------------------------------------------

// A line for each class; their numbers where there is no file.
std::vector<std::string> class_names(const std::string& file, int64_t count) {
  std::vector<std::string> names;
  if (file.empty())
    for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  else {
    std::istringstream lines(text_of(file));
    for (std::string line; std::getline(lines, line); names.push_back(line))
      if (line.ends_with('\r')) line.pop_back();
  }
  CHECK_AS(DataError, static_cast<int64_t>(names.size()) == count, "convert: ", file, " has ",
           names.size(), " lines, expected one for each of the ", count, " classes");
  CHECK_AS(DataError, std::set(names.begin(), names.end()).size() == names.size(),
           "convert: ", file, " has a line twice, expected a name of its own for each class");
  return names;
}

// Returns what is known of torchvision's networks for ImageNet, so that the user need not say it.
Metadata facts_of(const nn::NamedTensors& weights, const std::string& model,
                  const std::string& classes) {
  Metadata metadata;
  if (!model.empty()) metadata["model"] = model;
  const auto tensor = [&](const char* name) {
    const auto found = std::find_if(weights.begin(), weights.end(),
                                    [&](const auto& named) { return named.first == name; });
    return found == weights.end() ? Tensor() : found->second;
  };
  const Tensor stem = tensor("conv1.weight");
  const Tensor head = tensor("fc.bias");
  const bool for_imagenet = model.starts_with("resnet") && stem && stem.dim() == 4 &&
                            stem.size(1) == 3 && stem.size(2) == 7 && head && head.dim() == 1;
  if (!for_imagenet) {
    if (!classes.empty())
      throw UsageError("--classes is for ResNets with a stem for ImageNet, and these are none");
    return metadata;
  }
  const ImageTransform normalized = imagenet_normalization();
  metadata.merge(to_metadata({.name = "imagenet",
                              .channels = 3,
                              .image_size = 224,
                              .mean = normalized.mean,
                              .std = normalized.std,
                              .classes = class_names(classes, head.numel())}));
  metadata["data"] = "./imagenet";  // pictures of one's own, of these classes
  return metadata;
}

int convert_file(const fs::path& from, const fs::path& to, const WeightsOptions& options) {
  const nn::NamedTensors weights = read_torch_file(from, options.key);
  const std::string model = fitting_model(weights);
  nn::save_safetensors(to, weights, facts_of(weights, model, options.classes));
  int64_t elements = 0;
  for (const auto& [name, tensor] : weights) elements += tensor.numel();
  result("{}: {}, {}{}", to.string(), counted(static_cast<int64_t>(weights.size()), "tensor"),
         counted(elements, "element"),
         model.empty() ? ", for no network that is known here" : ", for " + model);
  const std::string next =
      program_command(fmt::format("train --data FOLDER --model {} --init {} --freeze backbone",
                                  model.empty() ? "MODEL" : model, shell_word(to.string())));
  message("next    {}", next);
  print_json({{"file", to.string()},
              {"model", model.empty() ? nlohmann::json() : nlohmann::json(model)},
              {"tensors", weights.size()},
              {"elements", elements},
              {"next", next}});
  return kOk;
}

int convert(const WeightsOptions& options) {
  const fs::path to = options.out.empty() ? fs::path(options.file).replace_extension(".safetensors")
                                          : fs::path(options.out);
  if (options.out.empty() && fs::exists(to))
    throw UsageError("{} is there already; --out writes it, or another file", to.string());
  check_output(to, options.file);
  return convert_file(options.file, to, options);
}

// ---- from the network
// -----------------------------------------------------------------------------

bool complete(const Pretrained& weights, const fs::path& file) {
  std::error_code none;
  return fs::file_size(file, none) == weights.bytes && sha256_file(file) == weights.sha256;
}

void download_weights(const Pretrained& weights, const fs::path& file) {
  std::optional<Progress> progress(std::in_place, weights.file,
                                   static_cast<int64_t>(weights.bytes));
  catch_interrupts();
  const auto show = [&](uint64_t received) {
    if (interrupted())
      throw JobFailed(128 + interrupted(),
                      "weights get: interrupted; the same command goes on where it stopped");
    const auto bytes = static_cast<int64_t>(received);
    progress->update(bytes, [&] { return human_bytes(bytes); });
  };
  const std::string by_hand = fmt::format(
      ". Without a network: fetch {}{} by other means, put it at {}, and call this again", kServer,
      weights.file, file.string());
  try {
    download(std::string(kServer) + weights.file, file,
             {.bytes = weights.bytes,
              .sha256 = weights.sha256,
              .part = file.string() + ".part",
              .progress = show});
  } catch (const NetworkError& error) {
    throw NetworkError(error.what() + by_hand);
  } catch (const NotImplementedError& error) {
    throw NotImplementedError(error.what() + by_hand);
  }
}

int get_weights(const WeightsOptions& options) {
  const Pretrained& weights = named(options.name);
  const fs::path folder = folder_for(options.data_dir);
  const fs::path to = converted_file(weights, folder);
  if (fs::exists(to)) {
    result("{} is in {}", weights.name, to.string());
    print_json({{"file", to.string()}, {"model", weights.name}});
    return kOk;
  }
  std::error_code none;  // what cannot be made cannot be written, and that is said
  fs::create_directories(folder, none);
  const fs::path file = folder / weights.file;
  if (!complete(weights, file)) download_weights(weights, file);
  const int code = convert_file(file, to, options);
  fs::remove(file, none);
  return code;
}

void add_list_options(CLI::App* app, WeightsOptions& o) { add_data_dir_option(app, o.data_dir); }
void add_get_options(CLI::App* app, WeightsOptions& o) {
  app->add_option("name", o.name, "resnet18, resnet34 or resnet50")->required();
  app->add_option("--classes", o.classes, "a file with the name of a class in each line");
  add_data_dir_option(app, o.data_dir);
}
void add_convert_options(CLI::App* app, WeightsOptions& o) {
  app->add_option("file", o.file, "what torch.save(model.state_dict(), FILE) has written")
      ->required();
  app->add_option("--out", o.out, "the .safetensors file (default: beside it, of the same name)");
  app->add_option("--key", o.key, "where it holds a dictionary: the state_dict's key in it");
  app->add_option("--classes", o.classes, "a file with the name of a class in each line");
  app->footer("Nothing in the file is executed: what is no state_dict of tensors is refused.");
}

const Command kWeights(56, "weights", "Weights trained elsewhere: list, get or convert them");
const Command kList(57, "weights list", "What there is, and what is here", list_weights,
                    add_list_options);
const Command kGet(58, "weights get", "Download weights (https, SHA-256 checked) and convert them",
                   get_weights, add_get_options);
const Command kConvert(59, "weights convert", "Make a .safetensors file of a .pth", convert,
                       add_convert_options);

}  // namespace
}  // namespace ringgrad::program
