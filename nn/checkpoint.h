// A checkpoint: everything that training needs to go on bit for bit as if it had not stopped, in
// one safetensors file.
//
//   model.NAME       parameters and buffers
//   optim.NAME       the optimizer's state
//   random.DEVICE    the default generators' states
//   metadata         progress: epoch, step, sampler position, …
#pragma once

#include <optional>

#include "ringgrad/nn/module.h"
#include "ringgrad/nn/safetensors.h"

namespace ringgrad::nn {

struct Checkpoint {
  NamedTensors model;      // Module::state_dict()
  NamedTensors optimizer;  // Optimizer::state_dict()
  NamedTensors random;     // random_state()
  std::map<std::string, std::string> progress;
};

// As save_safetensors() and load_safetensors(), and with their errors. Loading throws DataError on
// a tensor that belongs to none of the three.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);
Checkpoint load_checkpoint(const std::string& path);

// The states of the devices' default generators, by the devices' names; and back again. Devices
// that the state names and this machine lacks are ignored. With `onto` the state of whichever
// device becomes that one's: a run that goes on elsewhere draws the numbers that it would have
// drawn. Throws DataError on an entry that is no generator's state.
NamedTensors random_state(const std::vector<Device>& devices = {Device()});
void set_random_state(const NamedTensors& state, std::optional<Device> onto = {});
// Throws what set_random_state() would, and changes nothing.
void check_random_state(const NamedTensors& state);

// A network's weights from a file that holds nothing else (save_safetensors(path,
// net.state_dict()), or PyTorch's) or from a checkpoint, under the module's own names; and all of
// the file's metadata. With load_safetensors()'s errors. A checkpoint is a file all of whose names
// are a checkpoint's, not only its model's.
//   net.load_state_dict(load_weights(path).tensors);
SafetensorsFile load_weights(const std::string& path);

}  // namespace ringgrad::nn
