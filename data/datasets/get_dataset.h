// Downloads catalogued data sets. Only the program uses this file and download.h, so the library
// does not depend on libcurl.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "ringgrad/data/datasets/catalog.h"

namespace ringgrad {

// progress(file, received, total) is called now and then while `file` is downloaded. It may throw
// to stop.
using GetProgress = std::function<void(const std::string& file, uint64_t received, uint64_t total)>;

// Downloads missing or damaged files into DIRECTORY/NAME, unpacks them, and returns that folder.
// Complete files are not touched. Throws Error for data sets that are drawn, and what download()
// and extract_tar() throw. `options` is for tests; its bytes, hash and progress are not used.
std::filesystem::path get_dataset(const DatasetInfo& info, const std::filesystem::path& directory,
                                  const GetProgress& progress = {}, DownloadOptions options = {});

}  // namespace ringgrad
