// Downloads one file whose size and SHA-256 are known beforehand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace ringgrad {

struct DownloadOptions {
  uint64_t bytes = 0;  // exactly so many: more end the download at once, less are an error
  std::string sha256 = {};
  // Called when bytes have come, and about every second where none do; may throw to stop the
  // download.
  std::function<void(uint64_t received)> progress = {};

  // For tests against a server on this machine; no command sets them.
  // For the first address only: a redirect to http is always refused.
  bool allow_http_to_loopback = false;
  // Used instead of the system's certificate authorities.
  std::string ca_file = {};
  // Gives up below 1000 bytes per second for so long.
  int stall_seconds = 30;
};

// False where the program was built without libcurl; then download() throws NotImplementedError.
bool can_download();

// https only, at most five redirects, each to https. `file` appears once size and hash have been
// found right; whatever happens before, an older file stays as it was and no part is left behind.
// Throws NetworkError, IoError (disk), DataError (wrong size or hash).
void download(const std::string& url, const std::filesystem::path& file,
              const DownloadOptions& options);

// Unpacks chosen files from a .tar or .tar.gz.

// Which members are wanted, and their exact sizes. The caller's list decides all names and sizes on
// the disk, so an archive can neither write elsewhere nor fill the disk.
// Names and bytes: "cifar-10-batches-bin/test_batch.bin" -> 30730000.
using WantedMembers = std::map<std::string, uint64_t>;

// Writes each wanted member to folder / its file name; they appear at the end, once all are there
// whole. Throws IoError, and DataError when the archive is damaged, lacks a wanted member or holds
// it with another size.
void extract_tar(const std::filesystem::path& archive, const std::filesystem::path& folder,
                 const WantedMembers& wanted);

}  // namespace ringgrad
