// The weights of a network, from any of its files.
#pragma once

#include "ringgrad/nn/safetensors.h"

namespace ringgrad::nn {

// Returns a network's weights, under the module's own names, and all metadata of the file. The file
// is either a checkpoint or holds nothing but weights (from save_safetensors(path,
// net.state_dict()), or PyTorch's). It counts as a checkpoint only if all its names are a
// checkpoint's, not only those of its model. Throws what load_safetensors() throws.
//   net.load_state_dict(load_weights(path).tensors);
SafetensorsFile load_weights(const std::string& path);

}  // namespace ringgrad::nn
