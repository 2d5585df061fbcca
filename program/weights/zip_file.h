// A ZIP archive as torch.save() writes it (PKWARE's APPNOTE 6.3): its entries are stored, not
// packed, so that each is a range of the file's bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "ringgrad/core/base/file.h"

namespace ringgrad::program {

class ZipFile {
 public:
  struct Entry {
    uint64_t header;  // where its local header begins
    uint64_t size;
    uint32_t crc;
  };

  // Reads the directory. Throws DataError where it is damaged, or an entry is packed or encrypted;
  // and what InputFile throws.
  explicit ZipFile(const std::filesystem::path& path);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  uint64_t size() const { return file_.size(); }  // of the file
  std::string path() const { return file_.path().string(); }

  // All of an entry, whose CRC-32 is compared. `bytes` has the entry's size. Throws DataError.
  void read(const std::string& name, std::span<uint8_t> bytes) const;

 private:
  InputFile file_;
  uint64_t directory_ = 0;  // where it begins: entries lie before it
  std::map<std::string, Entry> entries_;
};

}  // namespace ringgrad::program
