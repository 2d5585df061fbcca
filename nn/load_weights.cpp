#include "ringgrad/nn/load_weights.h"

#include <algorithm>

#include "ringgrad/nn/checkpoint.h"

namespace ringgrad::nn {

SafetensorsFile load_weights(const std::string& path) {
  SafetensorsFile file = load_safetensors(path);
  // A network may have a part called "optim" or "model", or consist only of such parts.
  const auto of_model = [](const auto& entry) { return entry.first.starts_with(kModelPrefix); };
  const NamedTensors& all = file.tensors;
  if (std::ranges::all_of(all, belongs_to_checkpoint) && std::ranges::any_of(all, of_model) &&
      !std::ranges::all_of(all, of_model))
    file.tensors = without_prefix(all, kModelPrefix);
  return file;
}

}  // namespace ringgrad::nn
