#include "ringgrad/program/weights/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "ringgrad/core/base/check.h"

namespace ringgrad::program {
namespace {

constexpr uint64_t kMaxDirectoryBytes = 64 << 20;
constexpr size_t kEndBytes = 22;        // of the record that ends an archive
constexpr size_t kMaxComment = 65'535;  // behind it
constexpr size_t kLocatorBytes = 20;
constexpr size_t kEnd64Bytes = 56;
constexpr size_t kEntryBytes = 46;
constexpr size_t kLocalBytes = 30;
constexpr uint64_t kIn64 = 0xFFFF'FFFF;  // the number stands elsewhere, with 64 bits

uint64_t number(std::span<const uint8_t> bytes, size_t at, size_t length) {
  uint64_t value = 0;
  for (size_t i = length; i-- > 0;) value = value << 8 | bytes[at + i];
  return value;
}

bool begins(std::span<const uint8_t> bytes, size_t at, uint32_t signature) {
  return bytes.size() >= at + 4 && number(bytes, at, 4) == signature;
}

struct Directory {
  uint64_t count;
  uint64_t bytes;
  uint64_t begin;
};

// Looks for the end of the archive from behind: a comment may follow it.
Directory find_directory(const InputFile& file) {
  const std::string path = file.path().string();
  const size_t tail_bytes =
      std::min<uint64_t>(file.size(), kLocatorBytes + kEndBytes + kMaxComment);
  std::vector<uint8_t> tail(tail_bytes);
  file.read_at(file.size() - tail_bytes, tail);
  for (size_t end = tail_bytes < kEndBytes ? 0 : tail_bytes - kEndBytes + 1; end-- > 0;) {
    if (!begins(tail, end, 0x06054b50) || end + kEndBytes + number(tail, end + 20, 2) != tail_bytes)
      continue;
    Directory found{number(tail, end + 10, 2), number(tail, end + 12, 4),
                    number(tail, end + 16, 4)};
    if (end < kLocatorBytes || !begins(tail, end - kLocatorBytes, 0x07064b50)) return found;
    const uint64_t at = number(tail, end - kLocatorBytes + 8, 8);
    CHECK_AS(DataError, at < file.size() && file.size() - at >= kEnd64Bytes, "zip: ", path,
             ": the end of its directory is said to be at byte ", at, " of ", file.size());
    uint8_t end64[kEnd64Bytes];
    file.read_at(at, end64);
    CHECK_AS(DataError, begins(end64, 0, 0x06064b50), "zip: ", path,
             ": no end of its directory is at byte ", at);
    return {number(end64, 32, 8), number(end64, 40, 8), number(end64, 48, 8)};
  }
  throw DataError(str("zip: ", path, " has no directory at its end: it is cut off, or no archive"));
}

// Takes the numbers of 64 bits that stand for those that do not fit, in their order.
void read_extra(std::span<const uint8_t> extra, std::span<uint64_t* const> numbers) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const size_t length = number(extra, at + 2, 2);
    if (length > extra.size() - at - 4) return;
    size_t next = at + 4;
    if (number(extra, at, 2) == 1)
      for (uint64_t* wanted : numbers)
        if (*wanted == kIn64 && next + 8 <= at + 4 + length) {
          *wanted = number(extra, next, 8);
          next += 8;
        }
    at += 4 + length;
  }
}

}  // namespace

ZipFile::ZipFile(const std::filesystem::path& path) : file_(path) {
  const Directory directory = find_directory(file_);
  CHECK_AS(DataError,
           directory.begin <= file_.size() && directory.bytes <= file_.size() - directory.begin &&
               directory.bytes <= kMaxDirectoryBytes,
           "zip: ", this->path(), ": its directory is said to have ", directory.bytes,
           " bytes from byte ", directory.begin, " on, and the file has ", file_.size());
  directory_ = directory.begin;
  std::vector<uint8_t> bytes(directory.bytes);
  file_.read_at(directory_, bytes);
  size_t at = 0;
  for (uint64_t i = 0; i < directory.count; ++i) {
    CHECK_AS(DataError, begins(bytes, at, 0x02014b50) && bytes.size() - at >= kEntryBytes,
             "zip: ", this->path(), ": entry ", i, " of its directory is damaged");
    const size_t name_bytes = number(bytes, at + 28, 2);
    const size_t extra_bytes = number(bytes, at + 30, 2);
    const size_t all = kEntryBytes + name_bytes + extra_bytes + number(bytes, at + 32, 2);
    CHECK_AS(DataError, all <= bytes.size() - at, "zip: ", this->path(), ": entry ", i,
             " of its directory is cut off");
    const std::string name(
        bytes.begin() + static_cast<std::ptrdiff_t>(at + kEntryBytes),
        bytes.begin() + static_cast<std::ptrdiff_t>(at + kEntryBytes + name_bytes));
    CHECK_AS(DataError, number(bytes, at + 10, 2) == 0 && (bytes[at + 8] & 1) == 0,
             "zip: ", this->path(), ": ", name,
             " is packed or encrypted, and torch.save() does neither");
    Entry entry{number(bytes, at + 42, 4), number(bytes, at + 24, 4),
                static_cast<uint32_t>(number(bytes, at + 16, 4))};
    uint64_t packed = number(bytes, at + 20, 4);
    uint64_t* const numbers[] = {&entry.size, &packed, &entry.header};
    read_extra(std::span(bytes).subspan(at + kEntryBytes + name_bytes, extra_bytes), numbers);
    CHECK_AS(DataError, entries_.emplace(name, entry).second, "zip: ", this->path(), ": ", name,
             " comes twice");
    at += all;
  }
}

void ZipFile::read(const std::string& name, std::span<uint8_t> bytes) const {
  const Entry& entry = entries_.at(name);
  const auto inside = [&](uint64_t begin, uint64_t length) {
    CHECK_AS(DataError, begin <= directory_ && length <= directory_ - begin, "zip: ", path(), ": ",
             name, " is said to have ", length, " bytes from byte ", begin,
             " on, and the directory begins at ", directory_);
  };
  inside(entry.header, kLocalBytes);
  uint8_t local[kLocalBytes];
  file_.read_at(entry.header, local);
  CHECK_AS(DataError, begins(local, 0, 0x04034b50), "zip: ", path(), ": ", name,
           " does not begin at byte ", entry.header);
  const uint64_t begin = entry.header + kLocalBytes + number(local, 26, 2) + number(local, 28, 2);
  inside(begin, bytes.size());
  file_.read_at(begin, bytes);
  const auto found = static_cast<uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
  CHECK_AS(DataError, found == entry.crc, "zip: ", path(), ": ", name, " has CRC-32 ", found,
           ", expected ", entry.crc,
           ": it is damaged, or was saved without checksums (set_crc32_options)");
}

}  // namespace ringgrad::program
