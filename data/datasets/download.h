// Downloads one file whose size and SHA-256 are known beforehand.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

namespace ringgrad {

struct DownloadOptions {
  uint64_t bytes = 0;  // exactly this many: more end the download at once, fewer are an error
  std::string sha256 = {};
  // Keeps what has arrived in this file if the network fails or progress() throws; the next call
  // continues it. Removed once all is there or found wrong. Empty: nothing is kept.
  std::filesystem::path part = {};
  // Called when bytes have arrived, and otherwise about every second. May throw to stop the
  // download.
  std::function<void(uint64_t received)> progress = {};

  // For tests against a server on this machine; no command sets these two. It applies to the first
  // address only: a redirect to http is always refused.
  bool allow_http_to_loopback = false;
  // Replaces the system's certificate authorities.
  std::string ca_file = {};
  // Gives up after this many seconds below 1000 bytes per second.
  int stall_seconds = 30;
};

// Returns false if the program was built without libcurl. Then download() throws
// NotImplementedError.
bool can_download();

// Downloads by https only, with at most five redirects, each to https. `file` appears once size and
// hash have been verified. If anything fails before, an older file is unchanged and only
// options.part is left behind. Throws NetworkError, IoError (disk), DataError (wrong size or hash).
void download(const std::string& url, const std::filesystem::path& file,
              const DownloadOptions& options);

// Unpacks chosen files from a .tar or .tar.gz.

// The wanted members and their exact sizes: "cifar-10-batches-bin/test_batch.bin" -> 30730000. The
// caller's list decides all names and sizes on disk, so an archive can neither write elsewhere nor
// fill the disk.
using WantedMembers = std::map<std::string, uint64_t>;

// Writes each wanted member to folder / its file name. They appear at the end, when all are
// complete. Throws IoError, and DataError if the archive is damaged, lacks a wanted member or holds
// it with another size.
void extract_tar(const std::filesystem::path& archive, const std::filesystem::path& folder,
                 const WantedMembers& wanted);

}  // namespace ringgrad
