// The header of a safetensors file, which is treated as untrusted.
//
//   8 bytes   N, little-endian
//   N bytes   {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …,
//              "__metadata__": {"key": "text"}}
//   the rest  the tensors, row-major and little-endian; offsets count from here; no holes, no
//             overlaps
//
// (github.com/huggingface/safetensors.) A streaming parser that knows only this structure reads the
// JSON. So a hostile header is refused before anything is built from it, and a name that occurs
// twice is noticed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/core/base/file.h"
#include "ringgrad/core/dtype.h"
#include "ringgrad/core/shape.h"

namespace ringgrad::nn {

inline constexpr uint64_t kMaxHeaderBytes = 16 << 20;
inline constexpr size_t kMaxEntries = 65'536;
inline constexpr size_t kMaxNameBytes = 4096;

struct SafetensorsEntry {
  std::string name;
  // Nothing where ringgrad has no such dtype.
  std::optional<DType> dtype;
  Shape shape;
  // bytes [begin, end), counted from the beginning of the data
  uint64_t begin = 0;
  uint64_t end = 0;

  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  // The entries in the order of their data.
  std::vector<SafetensorsEntry> entries;
  // The metadata without the hashes.
  std::map<std::string, std::string> metadata;
  // SHA-256 by the tensor's name, for all tensors or for none.
  std::map<std::string, std::string> hashes;
  // The position in the file where the data begins.
  uint64_t data_begin = 0;

  bool operator==(const SafetensorsHeader&) const = default;
};

// Checks everything that can be checked without the data: lengths, JSON, dtypes, shapes against
// bytes, offsets against each other and the file's size, and the header's own hash if it has one.
// Throws DataError that names file, tensor, byte, expected and found.
SafetensorsHeader read_safetensors_header(const InputFile& file);

// Returns the bytes before the data: N and the JSON, padded with spaces to a multiple of 8, with
// the header's own hash. The length does not depend on the hashes.
std::string make_safetensors_header(const SafetensorsHeader& header);

}  // namespace ringgrad::nn
