#include "ringgrad/data/formats/byte_reader.h"

#include <zlib.h>

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad {

struct ByteReader::Inflater {
  z_stream stream{};
  std::vector<uint8_t> input = std::vector<uint8_t>(1 << 16);
  bool member_ended = false;

  Inflater() { ASSERT(inflateInit2(&stream, 15 + 16) == Z_OK); }  // 32 KiB window, gzip framing
  ~Inflater() { inflateEnd(&stream); }
};

ByteReader::ByteReader(const std::filesystem::path& file, Mode mode) : file_(file) {
  uint8_t magic[2] = {};
  if (mode == Unpack && file_.size() >= 2) file_.read_at(0, magic);
  if (magic[0] == 0x1f && magic[1] == 0x8b) inflater_ = std::make_unique<Inflater>();
}

ByteReader::~ByteReader() = default;

std::string ByteReader::at(uint64_t position) const {
  return str(file_.path().string(), ": byte ", position, packed() ? " (unpacked)" : "");
}

size_t ByteReader::read(std::span<uint8_t> out) {
  size_t filled = 0;
  while (filled < out.size()) {
    const size_t count =
        packed() ? inflate_some(out.subspan(filled)) : read_file(out.subspan(filled));
    if (count == 0) break;
    filled += count;
    position_ += count;
  }
  return filled;
}

// As many bytes as there are, at most out.size().
size_t ByteReader::read_file(std::span<uint8_t> out) {
  out = out.first(std::min<uint64_t>(out.size(), file_.size() - file_position_));
  // By all threads: to give a process memory takes the system longer than to copy the bytes.
  parallel_for(current_stream({}), static_cast<int64_t>(out.size()), 1 << 21,
               [&](int64_t begin, int64_t end) {
                 file_.read_at(file_position_ + static_cast<uint64_t>(begin),
                               out.subspan(begin, end - begin));
               });
  file_position_ += out.size();
  return out.size();
}

// At least one byte, or 0 at the end of the last member: RFC 1952 allows several, one after the
// other.
size_t ByteReader::inflate_some(std::span<uint8_t> out) {
  Inflater& z = *inflater_;
  z.stream.next_out = out.data();
  z.stream.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), 1u << 30));
  const uInt wanted = z.stream.avail_out;
  while (z.stream.avail_out == wanted) {
    if (z.stream.avail_in == 0) {
      z.stream.next_in = z.input.data();
      z.stream.avail_in = static_cast<uInt>(read_file(z.input));
      if (z.stream.avail_in == 0) {
        CHECK_AS(DataError, z.member_ended, "gzip: ", file_.path().string(), ": ends at byte ",
                 file_position_, " in the middle of compressed data; the file was cut off");
        return 0;
      }
    }
    if (z.member_ended) {
      inflateReset(&z.stream);
      z.member_ended = false;
    }
    const int code = inflate(&z.stream, Z_NO_FLUSH);
    CHECK_AS(DataError, code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR,
             "gzip: ", file_.path().string(), ": damaged at about byte ",
             file_position_ - z.stream.avail_in,
             " of the file: ", z.stream.msg ? z.stream.msg : zError(code));
    z.member_ended = code == Z_STREAM_END;
  }
  return wanted - z.stream.avail_out;
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
