#include "ringgrad/nn/checkpoint.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {
namespace {

// One file holds everything, so that a model is never found with the optimizer of another step.
constexpr const char* kModel = "model.";
constexpr const char* kOptimizer = "optim.";
constexpr const char* kRandom = "random.";

bool belongs_to_checkpoint(const std::pair<std::string, Tensor>& entry) {
  return entry.first.starts_with(kModel) || entry.first.starts_with(kOptimizer) ||
         entry.first.starts_with(kRandom);
}

}  // namespace

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  NamedTensors all;
  for (const auto& [prefix, part] :
       {std::pair(kModel, &checkpoint.model), std::pair(kOptimizer, &checkpoint.optimizer),
        std::pair(kRandom, &checkpoint.random)})
    for (const auto& [name, tensor] : *part) all.emplace_back(prefix + name, tensor);
  save_safetensors(path, all, checkpoint.progress);
}

Checkpoint load_checkpoint(const std::string& path) {
  SafetensorsFile file = load_safetensors(path);
  for (const auto& entry : file.tensors)
    CHECK_AS(DataError, belongs_to_checkpoint(entry), "load: ", path, ": '", entry.first,
             "' is no part of a checkpoint, expected names beginning with ", kModel, " ",
             kOptimizer, " or ", kRandom, "; is it a file of weights only?");
  return {.model = without_prefix(file.tensors, kModel),
          .optimizer = without_prefix(file.tensors, kOptimizer),
          .random = without_prefix(file.tensors, kRandom),
          .progress = std::move(file.metadata)};
}

SafetensorsFile load_weights(const std::string& path) {
  SafetensorsFile file = load_safetensors(path);
  // A network may have a part called "optim" or "model", or consist only of such parts.
  const auto of_model = [](const auto& entry) { return entry.first.starts_with(kModel); };
  const NamedTensors& all = file.tensors;
  if (std::ranges::all_of(all, belongs_to_checkpoint) && !std::ranges::all_of(all, of_model))
    file.tensors = without_prefix(all, kModel);
  return file;
}

}  // namespace ringgrad::nn
