// A checkpoint holds in one safetensors file everything that training needs to continue bit for bit
// as if it had not stopped.
//
//   model.NAME       parameters and buffers
//   optim.NAME       the optimizer's state
//   random.DEVICE    the default generators' states
//   metadata         progress: epoch, step, sampler position, …
#pragma once

#include "ringgrad/nn/module.h"
#include "ringgrad/nn/safetensors.h"

namespace ringgrad::nn {

struct Checkpoint {
  NamedTensors model;      // Module::state_dict()
  NamedTensors optimizer;  // Optimizer::state_dict()
  NamedTensors random;     // random_state() (random_state.h)
  std::map<std::string, std::string> progress;
};

// These behave like save_safetensors() and load_safetensors(), and throw the same errors. Loading
// throws DataError on a tensor that belongs to none of the three.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);
Checkpoint load_checkpoint(const std::string& path);

// Returns a network's weights, under the module's own names, and all metadata of the file. The file
// is either a checkpoint or holds nothing but weights (from save_safetensors(path,
// net.state_dict()), or PyTorch's). It counts as a checkpoint only if all its names are a
// checkpoint's, not only those of its model. Throws what load_safetensors() throws.
//   net.load_state_dict(load_weights(path).tensors);
SafetensorsFile load_weights(const std::string& path);

}  // namespace ringgrad::nn
