// A directory that is removed with its object. The ranks of a job leave an answer there for the
// process that started them.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "ringgrad/core/error.h"

namespace ringgrad::program {

class TemporaryDirectory {
 public:
  // Throws IoError, in the command's name.
  explicit TemporaryDirectory(const char* command) {
    std::string name = (std::filesystem::temp_directory_path() / "ringgrad-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw IoError(
          fmt::format("{}: cannot make the directory {}: {}", command, name, std::strerror(errno)));
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path of(const std::string& name) const { return path_ / (name + ".json"); }

 private:
  std::filesystem::path path_;
};

}  // namespace ringgrad::program
