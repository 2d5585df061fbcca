#include "ringgrad/data/formats/byte_reader.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad {

constinit MakeUnpacker make_gzip_unpacker = nullptr;

ByteReader::ByteReader(const std::filesystem::path& file, Mode mode) : file_(file) {
  uint8_t magic[2] = {};
  if (mode == Unpack && file_.size() >= 2) file_.read_at(0, magic);
  if (magic[0] != 0x1f || magic[1] != 0x8b) return;
  CHECK_AS(DataError, make_gzip_unpacker != nullptr, "read: ", path(),
           ": is packed by gzip, which this program does not read; unpack it");
  unpacker_ = make_gzip_unpacker(*this);
}

std::string ByteReader::at(uint64_t position) const {
  return str(path(), ": byte ", position, packed() ? " (unpacked)" : "");
}

size_t ByteReader::read(std::span<uint8_t> out) {
  size_t filled = 0;
  while (filled < out.size()) {
    const size_t count =
        packed() ? unpacker_->unpack(out.subspan(filled)) : read_file(out.subspan(filled));
    if (count == 0) break;
    filled += count;
    position_ += count;
  }
  return filled;
}

size_t ByteReader::read_file(std::span<uint8_t> out) {
  out = out.first(std::min<uint64_t>(out.size(), file_.size() - file_position_));
  // All threads copy, because the system takes longer to give a process memory than to copy the
  // bytes.
  parallel_for(current_stream({}), static_cast<int64_t>(out.size()), 1 << 21,
               [&](int64_t begin, int64_t end) {
                 file_.read_at(file_position_ + static_cast<uint64_t>(begin),
                               out.subspan(begin, end - begin));
               });
  file_position_ += out.size();
  return out.size();
}

void ByteReader::read_exactly(std::span<uint8_t> out, const std::string& what) {
  const uint64_t start = position_;
  const size_t count = read(out);
  CHECK_AS(DataError, count == out.size(), "read: ", at(start + count),
           ": the data ends here, expected ", out.size(), " bytes of ", what, ", found ", count);
}

void ByteReader::expect_end() {
  uint8_t byte;
  CHECK_AS(DataError, read({&byte, 1}) == 0, "read: ", at(position_ - 1),
           ": expected the end of the data, found more");
}

}  // namespace ringgrad
