#include "ringgrad/data/datasets/get_dataset.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/data/datasets/dataset_files.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/formats/byte_reader.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

void unpack_gz(const fs::path& packed, const fs::path& file) {
  ByteReader reader(packed);
  AtomicFile out(file);
  std::vector<uint8_t> buffer(1 << 18);
  while (const size_t count = reader.read(buffer)) out.write({buffer.data(), count});
  out.commit();
}

bool complete(const DatasetInfo& info, const fs::path& folder, const std::string& only) {
  for (const DatasetFile& file : info.files) {
    if (!only.empty() && file.name != only) continue;
    std::error_code error;
    const fs::path path = folder / file.name;
    if (fs::file_size(path, error) != file.bytes || error || sha256_file(path) != file.sha256)
      return false;
  }
  return true;
}

void download_any(const DatasetDownload& what, const fs::path& file, const GetProgress& progress,
                  DownloadOptions options) {
  options.bytes = what.bytes;
  options.sha256 = what.sha256;
  if (progress)
    options.progress = [&](uint64_t received) { progress(what.name, received, what.bytes); };
  std::string before;  // the reasons why earlier servers failed
  for (size_t i = 0;; ++i) {
    const bool last = i + 1 == what.urls.size();
    try {
      return download(what.urls[i], file, options);
    } catch (const NetworkError& error) {
      if (last) throw NetworkError(before + error.what());
      before += error.what() + std::string("; and ");
    } catch (const DataError& error) {  // another server may have the right file
      if (last) throw DataError(before + error.what());
      before += error.what() + std::string("; and ");
    }
  }
}

}  // namespace

fs::path get_dataset(const DatasetInfo& info, const fs::path& directory,
                     const GetProgress& progress, DownloadOptions options) {
  CHECK(!info.draw, "data get: ", info.name, " is drawn on this machine; ",
        program_command("data make " + info.name), " does it");
  const fs::path folder = make_dataset_folder(info, directory);
  for (const DatasetDownload& what : info.downloads) {
    const bool archive = !what.members.empty();
    const fs::path packed = folder / what.name;
    const fs::path unpacked = folder / fs::path(what.name).stem();
    if (complete(info, folder, archive ? "" : unpacked.filename().string())) continue;
    download_any(what, packed, progress, options);
    if (archive)
      extract_tar(packed, folder, what.members);
    else
      unpack_gz(packed, unpacked);
    std::error_code error;
    fs::remove(packed, error);
  }
  return folder;
}

}  // namespace ringgrad
