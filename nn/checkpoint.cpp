#include "ringgrad/nn/checkpoint.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {
namespace {

// One file holds everything, so that a model is never found with the optimizer of another step.
constexpr const char* kOptimizer = "optim.";
constexpr const char* kRandom = "random.";

}  // namespace

bool belongs_to_checkpoint(const std::pair<std::string, Tensor>& entry) {
  return entry.first.starts_with(kModelPrefix) || entry.first.starts_with(kOptimizer) ||
         entry.first.starts_with(kRandom);
}

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  NamedTensors all;
  for (const auto& [prefix, part] :
       {std::pair(kModelPrefix, &checkpoint.model), std::pair(kOptimizer, &checkpoint.optimizer),
        std::pair(kRandom, &checkpoint.random)})
    for (const auto& [name, tensor] : *part) all.emplace_back(prefix + name, tensor);
  save_safetensors(path, all, checkpoint.progress);
}

Checkpoint load_checkpoint(const std::string& path) {
  SafetensorsFile file = load_safetensors(path);
  for (const auto& entry : file.tensors)
    CHECK_AS(DataError, belongs_to_checkpoint(entry), "load: ", path, ": '", entry.first,
             "' is no part of a checkpoint, expected names beginning with ", kModelPrefix, " ",
             kOptimizer, " or ", kRandom, "; is it a file of weights only?");
  return {.model = without_prefix(file.tensors, kModelPrefix),
          .optimizer = without_prefix(file.tensors, kOptimizer),
          .random = without_prefix(file.tensors, kRandom),
          .progress = std::move(file.metadata)};
}

}  // namespace ringgrad::nn
