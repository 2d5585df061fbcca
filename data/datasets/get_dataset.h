// Downloads the data sets of the catalog. It and download.h are the program's: the library does not
// bring libcurl along.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "ringgrad/data/datasets/catalog.h"

namespace ringgrad {

// progress(file, received, total): now and then while `file` is downloaded; may throw to stop.
using GetProgress = std::function<void(const std::string& file, uint64_t received, uint64_t total)>;

// Downloads what is missing or damaged into DIRECTORY/NAME, unpacks it, and returns that folder.
// What is complete is left alone. Throws Error for data sets that are drawn, and what download()
// and extract_tar() throw. `options` is there for tests: its bytes, hash and progress are not used.
std::filesystem::path get_dataset(const DatasetInfo& info, const std::filesystem::path& directory,
                                  const GetProgress& progress = {}, DownloadOptions options = {});

}  // namespace ringgrad
