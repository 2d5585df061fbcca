// Tensors in files, in the safetensors format. Files of PyTorch's safetensors load here, and vice
// versa.
//
// Files written here carry a SHA-256 of every tensor and of the header in their metadata. Loading
// verifies them; other readers ignore them.
#pragma once

#include <map>
#include <string>

#include "ringgrad/nn/named_tensors.h"

namespace ringgrad::nn {

struct SafetensorsFile {
  NamedTensors tensors;  // on the CPU, in the order of the file
  std::map<std::string, std::string> metadata;
  // The names of tensors that were left out: ringgrad lacks their dtype (I8, I16, F8_E4M3, …).
  std::vector<std::string> skipped;
};

// Loads everything but what `skipped` names, or throws: IoError if the file cannot be read;
// DataError that names file, tensor, bytes, expected and found if it is damaged. Allocates at most
// twice the file's size plus 64 MiB, because unaligned tensors are copied.
SafetensorsFile load_safetensors(const std::string& path);

// Writes the file atomically (core/base/file.h). Everything is read back before it replaces an
// older file of that name. If it throws IoError, the older file is unchanged. Takes any dtypes,
// devices and layouts. Names are unique; keys of the metadata do not begin with "sha256".
void save_safetensors(const std::string& path, const NamedTensors& tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace ringgrad::nn
