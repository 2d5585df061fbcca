#include "ringgrad/data/datasets/tar.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "ringgrad/core/base/atomic_file.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/data/datasets/byte_reader.h"

namespace ringgrad {
namespace {

constexpr size_t kBlock = 512;  // headers are one block, contents are padded to whole ones (POSIX.1-1988, ustar)

struct Header {
  std::string name;
  uint64_t size;
  bool regular_file;
};

std::string text(std::span<const uint8_t> field) {  // NUL-terminated unless it fills the field
  return std::string(field.begin(), std::find(field.begin(), field.end(), 0));
}

uint64_t octal(const ByteReader& reader, std::span<const uint8_t> field, const char* what) {
  uint64_t value = 0;
  for (uint8_t c : field) {
    if (c == ' ' || c == 0) continue;
    CHECK_AS(DataError, c >= '0' && c <= '7', "tar: ", reader.at(reader.position() - kBlock), ": the ", what,
             " is not an octal number");
    value = value * 8 + (c - '0');
  }
  return value;
}

Header parse(const ByteReader& reader, std::span<const uint8_t, kBlock> block) {
  uint64_t sum = 0;  // of all bytes, those of the checksum itself counted as spaces
  for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? ' ' : block[i];
  CHECK_AS(DataError, octal(reader, block.subspan(148, 8), "checksum") == sum,
           "tar: ", reader.at(reader.position() - kBlock), ": the header's checksum is wrong");
  const std::string prefix = text(block.subspan(345, 155)), name = text(block.subspan(0, 100));
  return {prefix.empty() || text(block.subspan(257, 5)) != "ustar" ? name : prefix + "/" + name,
          octal(reader, block.subspan(124, 12), "size"), block[156] == '0' || block[156] == 0};
}

}  // namespace

void extract_tar(const std::filesystem::path& archive, const std::filesystem::path& folder,
                 const WantedMembers& wanted) {
  ByteReader reader(archive);
  std::map<std::string, std::unique_ptr<AtomicFile>> found;
  std::vector<uint8_t> buffer(512 * kBlock);
  std::array<uint8_t, kBlock> block;
  while (found.size() < wanted.size() && reader.read(block) == kBlock) {
    if (std::all_of(block.begin(), block.end(), [](uint8_t b) { return b == 0; })) break;  // the end of the archive
    const Header header = parse(reader, block);
    const auto member = wanted.find(header.name);
    AtomicFile* out = nullptr;
    if (member != wanted.end() && header.regular_file && !found.contains(header.name)) {
      CHECK_AS(DataError, header.size == member->second, "tar: ", archive.string(), ": ", header.name, " has ",
               header.size, " bytes, expected ", member->second);
      auto file = std::make_unique<AtomicFile>(folder / std::filesystem::path(header.name).filename());
      out = found.emplace(header.name, std::move(file)).first->second.get();
    }
    const uint64_t padded = (header.size + kBlock - 1) / kBlock * kBlock;
    for (uint64_t at = 0; at < padded; at += buffer.size()) {
      const std::span chunk(buffer.data(), std::min<uint64_t>(buffer.size(), padded - at));
      reader.read_exactly(chunk, header.name);
      if (out && at < header.size) out->write(chunk.first(std::min<uint64_t>(chunk.size(), header.size - at)));
    }
  }
  for (const auto& [name, size] : wanted)
    CHECK_AS(DataError, found.contains(name), "tar: ", archive.string(), ": has no file ", name);
  for (auto& [name, file] : found) file->commit();
}

}  // namespace ringgrad
