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

// The names of the model's tensors in the file begin with it.
inline constexpr const char* kModelPrefix = "model.";
// Returns true for a name that a checkpoint's tensors may have.
bool belongs_to_checkpoint(const std::pair<std::string, Tensor>& entry);

}  // namespace ringgrad::nn
