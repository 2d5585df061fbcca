#include "ringgrad/data/datasets/data_place.h"

#include <filesystem>

#include "ringgrad/core/base/environment.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

// Returns "" if the program is not in a checkout, or the checkout has no data.
std::string files_of_checkout() {
  std::error_code none;
  for (fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
       folder.has_relative_path(); folder = folder.parent_path()) {
    if (!fs::exists(folder / "data/registry.h", none)) continue;
    const fs::path files = folder / "data/files";
    return fs::is_directory(files, none) && !fs::is_empty(files, none) && !none ? files.string()
                                                                                : "";
  }
  return "";
}

}  // namespace

DataPlace data_place(const std::string& given) {
  if (!given.empty()) return {given, "--data-dir"};
  if (const std::string named = variable("RINGGRAD_DATA_DIR"); !named.empty())
    return {named, "RINGGRAD_DATA_DIR"};
  if (const std::string files = files_of_checkout(); !files.empty())
    return {files, "this checkout's"};
  // The specification says to ignore other values.
  if (const std::string data = variable("XDG_DATA_HOME"); data.starts_with('/'))
    return {data + "/ringgrad", "XDG_DATA_HOME"};
  if (const std::string home = variable("HOME"); !home.empty())
    return {home + "/.local/share/ringgrad", "the user's"};
  return {"data/files", "as neither RINGGRAD_DATA_DIR nor HOME is set"};
}

}  // namespace ringgrad
