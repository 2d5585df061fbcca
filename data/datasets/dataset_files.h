// Finds, reads, makes and checks the files of a catalogued data set below a data directory.
//
// A data set is in DIRECTORY/NAME, or where other programs put it (catalog.h lists those places).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/split.h"

namespace ringgrad {

// Returns the command that makes or gets a data set: "./go data get mnist", with --data-dir unless
// it is the default.
std::string command_for(const DatasetInfo& info, const std::filesystem::path& directory);

// Returns the folder that holds at least one of the data set's files, or nothing.
std::optional<std::filesystem::path> find_dataset(const DatasetInfo& info,
                                                  const std::filesystem::path& directory);

// Behaves like load_dataset() (data/registry.h).
ImageDataset read_dataset(const DatasetInfo& info, Split split,
                          const std::filesystem::path& directory);

// Returns DIRECTORY/NAME, which is created if it does not exist. Throws IoError.
std::filesystem::path make_dataset_folder(const DatasetInfo& info,
                                          const std::filesystem::path& directory);

// Draws digits or shapes into DIRECTORY/NAME, replaces older files, and returns that folder. Throws
// IoError, and Error for data sets that are not drawn.
std::filesystem::path make_dataset(const DatasetInfo& info, const std::filesystem::path& directory);

struct CheckedFile {
  std::filesystem::path file;
  uint64_t bytes;      // unpacked
  std::string sha256;  // hash of the unpacked bytes
  bool as_published;   // the hash equals the published one
};
struct CheckedDataset {
  std::filesystem::path folder;
  std::vector<CheckedFile> files;
  // the numbers that were found
  int64_t train_size;
  int64_t test_size;
};

// Reads both splits entirely and hashes all files. Throws as read_dataset, but draws nothing.
CheckedDataset check_dataset(const DatasetInfo& info, const std::filesystem::path& directory);

}  // namespace ringgrad
