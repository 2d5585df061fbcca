// The files of a data set of the catalog: finding, reading, making and checking them below a data
// directory.
//
// A data set lies in DIRECTORY/NAME, or where other programs put it (catalog.h lists those places).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

// The command that makes or gets a data set: "./go data get mnist", with --data-dir where it is not
// the default.
std::string command_for(const DatasetInfo& info, const std::filesystem::path& directory);

// The folder that holds at least one of the data set's files, or nothing.
std::optional<std::filesystem::path> find_dataset(const DatasetInfo& info,
                                                  const std::filesystem::path& directory);

// As load_dataset() (data/registry.h).
ImageDataset read_dataset(const DatasetInfo& info, Split split,
                          const std::filesystem::path& directory);

// DIRECTORY/NAME, made if need be. Throws IoError.
std::filesystem::path make_dataset_folder(const DatasetInfo& info,
                                          const std::filesystem::path& directory);

// Draws digits or shapes into DIRECTORY/NAME, over older files, and returns that folder. Throws
// IoError, and Error for data sets that are not drawn.
std::filesystem::path make_dataset(const DatasetInfo& info, const std::filesystem::path& directory);

struct CheckedFile {
  std::filesystem::path file;
  uint64_t bytes;      // unpacked
  std::string sha256;  // of the unpacked bytes
  bool as_published;   // the hash is the known one
};
struct CheckedDataset {
  std::filesystem::path folder;
  std::vector<CheckedFile> files;
  // as found
  int64_t train_size;
  int64_t test_size;
};

// Reads both splits entirely and hashes all files. Throws as read_dataset, but draws nothing.
CheckedDataset check_dataset(const DatasetInfo& info, const std::filesystem::path& directory);

}  // namespace ringgrad
