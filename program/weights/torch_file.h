// Reads the files of torch.save(model.state_dict(), FILE), with distrust.
#pragma once

#include <string>

#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::program {

// Returns true if a file begins like those of torch.save(), of any version; false if it cannot be
// read.
bool is_torch_file(const std::string& path);

// Throws DataError, naming the command that converts it, where a file is one.
void refuse_torch_file(const std::string& path);

// The tensors of the state_dict, on the CPU, in its order; those that shared memory share it here,
// too. `key`: where the file holds a dictionary that has the state_dict under this key. Nothing in
// the file is executed. Throws DataError, naming what it found, on anything else; IoError.
nn::NamedTensors read_torch_file(const std::string& path, const std::string& key = "");

}  // namespace ringgrad::program
