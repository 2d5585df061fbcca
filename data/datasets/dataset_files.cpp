#include "ringgrad/data/datasets/dataset_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/datasets/data_place.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/formats/byte_reader.h"
#include "ringgrad/data/formats/cifar.h"
#include "ringgrad/data/formats/idx.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

// Returns FILE, or FILE.gz if only that exists and the format is read packed, too.
fs::path present(const DatasetInfo& info, const fs::path& file) {
  if (info.format != DatasetInfo::Idx) return file;
  std::error_code error;
  fs::path packed = file;
  packed += ".gz";
  return !fs::exists(file, error) && fs::exists(packed, error) ? packed : file;
}

[[noreturn]] void throw_missing(const DatasetInfo& info, const fs::path& directory,
                                const std::string& what) {
  if (info.draw)
    throw DataError(fmt::format("{}.\n  make it    {}", what, command_for(info, directory)));
  uint64_t bytes = 0;
  for (const DatasetDownload& download : info.downloads) bytes += download.bytes;
  throw DataError(fmt::format(
      "{}, and nothing is downloaded by itself.\n"
      "  get it     {}  ({:.1f} MB, https, SHA-256 checked)\n"
      "  offline    --data {}",
      what, command_for(info, directory), static_cast<double>(bytes) / 1e6, info.stand_in));
}

// Throws if this process may not read the folder. A missing folder is created, or reported,
// elsewhere.
void check_may_look(const fs::path& directory) {
  std::error_code error;
  (void)fs::status(directory / ".", error);
  CHECK_AS(DataError, error != std::errc::permission_denied, "data: ", directory.string(),
           " cannot be read: ", error.message(), "; --data-dir names another folder");
}

fs::path find_or_throw(const DatasetInfo& info, const fs::path& directory) {
  if (auto folder = find_dataset(info, directory)) return *folder;
  throw_missing(info, directory, (directory / info.name).string() + " has no " + info.title);
}

// `folder` is the place below `directory` where the data set was found.
ImageDataset read_split(const DatasetInfo& info, Split split, const fs::path& folder,
                        const fs::path& directory) {
  auto find = [&](const std::string& file) {
    fs::path path = present(info, folder / file);
    std::error_code error;
    if (!fs::exists(path, error))
      throw_missing(info, directory, folder.string() + " has no " + file);
    return path;
  };
  if (info.format == DatasetInfo::Idx) {
    const std::string prefix = split == Split::Train ? "train" : "t10k";
    const fs::path images = find(prefix + "-images-idx3-ubyte");
    const fs::path labels = find(prefix + "-labels-idx1-ubyte");
    ImageDataset dataset = read_idx_dataset(info.name, images, labels, info.classes);
    const Shape expected{dataset.size(), info.channels, info.image_size, info.image_size};
    CHECK_AS(DataError, dataset.images.shape() == expected, "data: ", images.string(),
             ": holds images of shape ", dataset.images.shape(), ", expected ", expected, " as ",
             info.title, " has");
    return dataset;
  }
  const CifarFormat& format = info.format == DatasetInfo::Cifar10 ? kCifar10 : kCifar100;
  for (const std::string& file : split == Split::Train ? format.train_files : format.test_files)
    find(file);
  return read_cifar(format, info.name, folder, split, info.classes);
}

CheckedFile check_file(const DatasetInfo& info, const DatasetFile& expected,
                       const fs::path& folder) {
  CheckedFile found{present(info, folder / expected.name), 0, "", false};
  ByteReader reader(found.file);
  Sha256 sha;
  std::vector<uint8_t> buffer(1 << 18);
  // If a .gz unpacks to more than the file should have, its beginning already shows that it is
  // another file.
  while (const size_t count = found.bytes <= expected.bytes ? reader.read(buffer) : 0) {
    sha.update({buffer.data(), count});
    found.bytes += count;
  }
  found.sha256 = sha.hex();
  found.as_published = found.sha256 == expected.sha256;
  return found;
}

}  // namespace

fs::path make_dataset_folder(const DatasetInfo& info, const fs::path& directory) {
  fs::path folder = directory / info.name;
  std::error_code error;
  fs::create_directories(folder, error);
  CHECK_AS(IoError, !error, "data: cannot make the folder ", folder.string(), ": ", error.message(),
           "; another is --data-dir or RINGGRAD_DATA_DIR");
  return folder;
}

std::string command_for(const DatasetInfo& info, const fs::path& directory) {
  const bool usual =
      directory.lexically_normal() == fs::path(data_place().directory).lexically_normal();
  return program_command(fmt::format("data {} {}{}", info.draw ? "make" : "get", info.name,
                                     usual ? "" : " --data-dir " + shell_word(directory.string())));
}

std::optional<fs::path> find_dataset(const DatasetInfo& info, const fs::path& directory) {
  std::vector<fs::path> folders{directory / info.name};
  for (const std::string& folder : info.folders) folders.push_back(directory / folder);
  for (const fs::path& folder : folders) {
    for (const DatasetFile& file : info.files) {
      std::error_code error;
      if (fs::exists(present(info, folder / file.name), error)) return folder.lexically_normal();
    }
  }
  return {};
}

ImageDataset read_dataset(const DatasetInfo& info, Split split, const fs::path& directory) {
  check_may_look(directory);
  // If some files exist and others do not, another rank may be drawing them at this moment. Then
  // this rank draws them as well.
  auto missing = [&](const DatasetFile& file) {
    return !fs::exists(directory / info.name / file.name);
  };
  if (info.draw && std::any_of(info.files.begin(), info.files.end(), missing))
    make_dataset(info, directory);
  return read_split(info, split, find_or_throw(info, directory), directory);
}

fs::path make_dataset(const DatasetInfo& info, const fs::path& directory) {
  CHECK(info.draw, "data make: ", info.name, " is not drawn by a program; ",
        program_command("data get " + info.name), " downloads it");
  const fs::path folder = make_dataset_folder(info, directory);
  info.draw(folder);
  return folder;
}

CheckedDataset check_dataset(const DatasetInfo& info, const fs::path& directory) {
  check_may_look(directory);
  CheckedDataset result{find_or_throw(info, directory), {}, 0, 0};
  result.train_size = read_split(info, Split::Train, result.folder, directory).size();
  result.test_size = read_split(info, Split::Test, result.folder, directory).size();
  for (const DatasetFile& file : info.files)
    result.files.push_back(check_file(info, file, result.folder));
  return result;
}

}  // namespace ringgrad
