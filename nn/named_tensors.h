// Tensors with names: what a module lists, an optimizer keeps and a checkpoint holds.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad::nn {

using ringgrad::NamedTensors;

// What loading by name found: own names that the state lacks, and names of the state that nobody
// owns.
struct LoadReport {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  // Every name began with "module." (PyTorch's DDP), and was taken without it.
  bool stripped_module_prefix = false;
};

std::vector<Tensor> tensors_of(const NamedTensors& named);

// Copies each of the state's values into the own tensor of that name, converting dtype and crossing
// devices. Names with a "module." prefix throughout are accepted without it where no own name
// begins so; shared weights may come under one of their names only. Strict: throws DataError
// listing every name that is missing or unexpected. Always: throws ShapeError listing every tensor
// whose shape differs, DTypeError every one whose weights would come from whole numbers, DataError
// on a name that the state has twice. Nothing is changed when it throws. `operation` begins the
// messages.
LoadReport copy_by_name(const char* operation, const NamedTensors& own, const NamedTensors& state,
                        bool strict);

// All of that but the copying: where several states are to be loaded or none, each is checked
// first.
LoadReport check_by_name(const char* operation, const NamedTensors& own, const NamedTensors& state,
                         bool strict);

// The entries whose names begin with `prefix`, without it.
NamedTensors without_prefix(const NamedTensors& named, const std::string& prefix);

}  // namespace ringgrad::nn
