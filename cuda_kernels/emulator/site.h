// A place in a kernel's source, for reports. Intrinsics take one as a defaulted last argument, so that it names the
// line which called them.
#pragma once

#include <cstring>
#include <string>

namespace ringgrad::emulator {

struct Site {
  const char* file = "";
  int line = 0;

  static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }
  bool operator==(const Site& other) const { return line == other.line && std::strcmp(file, other.file) == 0; }

  std::string text() const {  // softmax.cu:42
    const char* slash = std::strrchr(file, '/');
    return std::string(slash ? slash + 1 : file) + ":" + std::to_string(line);
  }
};

}  // namespace ringgrad::emulator
