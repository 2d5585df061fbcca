// Data sets by name: finding, loading, making, downloading and checking them below a data directory.
//
// A data set lies in DIRECTORY/NAME, or where other programs put it (data/datasets/catalog.h lists those places).
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

// Where data sets lie: what is given, else RINGGRAD_DATA_DIR, else data/files.
std::string data_directory(const std::string& given);

// The command that makes or gets a data set: "./go data get mnist", with --data-dir where it is not the default.
std::string command_for(const DatasetInfo& info, const std::filesystem::path& directory);

// The folder that holds at least one of the data set's files, or nothing.
std::optional<std::filesystem::path> find_dataset(const DatasetInfo& info, const std::filesystem::path& directory);

// One split. digits and shapes are drawn into DIRECTORY/NAME when they are missing; nothing is ever downloaded.
// Throws Error when there is no data set of that name; DataError, saying how to get it, when a file is missing; and
// what read_idx_dataset and read_cifar throw.
ImageDataset load_dataset(const std::string& name, Split split, const std::filesystem::path& directory);

// Draws digits or shapes into DIRECTORY/NAME, over older files, and returns that folder. Throws IoError, and Error for
// data sets that are not drawn.
std::filesystem::path make_dataset(const DatasetInfo& info, const std::filesystem::path& directory);

// progress(file, received, total): now and then while `file` is downloaded; may throw to stop.
using GetProgress = std::function<void(const std::string& file, uint64_t received, uint64_t total)>;

// Downloads what is missing or damaged into DIRECTORY/NAME, unpacks it, and returns that folder. What is complete is
// left alone. Throws Error for data sets that are drawn, and what download() and extract_tar() throw.
// `options` is there for tests: its bytes, hash and progress are not used.
std::filesystem::path get_dataset(const DatasetInfo& info, const std::filesystem::path& directory,
                                  const GetProgress& progress = {}, DownloadOptions options = {});

struct CheckedFile {
  std::filesystem::path file;
  uint64_t bytes;      // unpacked
  std::string sha256;  // of the unpacked bytes
  bool as_published;   // the hash is the known one
};
struct CheckedDataset {
  std::filesystem::path folder;
  std::vector<CheckedFile> files;
  int64_t train_size, test_size;  // as found
};

// Reads both splits entirely and hashes all files. Throws as load_dataset, but draws nothing.
CheckedDataset check_dataset(const DatasetInfo& info, const std::filesystem::path& directory);

}  // namespace ringgrad
