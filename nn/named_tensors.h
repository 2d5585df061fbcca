// Tensors with names, as modules list them, optimizers keep them and checkpoints hold them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad::nn {

using ringgrad::NamedTensors;

// The result of loading by name: own names that the state lacks, and names of the state that match
// none.
struct LoadReport {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  // True if every name began with "module." (PyTorch's DDP) and was matched without it.
  bool stripped_module_prefix = false;
};

std::vector<Tensor> tensors_of(const NamedTensors& named);

// Copies each of the state's values into the own tensor of that name, converting dtypes and
// crossing devices. If all names of the state begin with "module." and no own name does, the prefix
// is dropped. Shared weights may appear under only one of their names. If `strict`, throws
// DataError that lists every name that is missing or unexpected. Always throws ShapeError that
// lists every tensor whose shape differs, and DTypeError that lists every weight whose value would
// be an integer. Throws DataError on a name that the state has twice. Nothing is changed if it
// throws. `operation` begins the messages.
LoadReport copy_by_name(const char* operation, const NamedTensors& own, const NamedTensors& state,
                        bool strict);

// Makes the same checks without copying. If several states are to be loaded all or none, each is
// checked first.
LoadReport check_by_name(const char* operation, const NamedTensors& own, const NamedTensors& state,
                         bool strict);

// Returns the entries whose names begin with `prefix`, without the prefix.
NamedTensors without_prefix(const NamedTensors& named, const std::string& prefix);

}  // namespace ringgrad::nn
