#include <algorithm>
#include <vector>

#include "ringgrad/core/base/file.h"
#include "ringgrad/core/base/sha256.h"

namespace ringgrad {

std::string sha256_file(const std::filesystem::path& file) {
  const InputFile in(file);
  std::vector<uint8_t> buffer(1 << 18);
  Sha256 sha;
  for (uint64_t at = 0; at < in.size(); at += buffer.size()) {
    buffer.resize(std::min<uint64_t>(buffer.size(), in.size() - at));
    in.read_at(at, buffer);
    sha.update(buffer);
  }
  return sha.hex();
}

}  // namespace ringgrad
