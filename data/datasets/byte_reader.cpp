#include "ringgrad/data/datasets/byte_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

struct ByteReader::Inflater {
  z_stream stream{};
  std::vector<uint8_t> input = std::vector<uint8_t>(1 << 16);
  bool member_ended = false;

  Inflater() { ASSERT(inflateInit2(&stream, 15 + 16) == Z_OK); }  // 32 KiB window, gzip framing
  ~Inflater() { inflateEnd(&stream); }
};

ByteReader::ByteReader(const std::filesystem::path& file, Mode mode)
    // O_NONBLOCK: opening a pipe would otherwise wait for somebody to write into it.
    : file_(file), descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  CHECK_AS(IoError, descriptor_ >= 0, "read: ", file.string(), ": ", std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  uint8_t magic[2] = {};
  if (regular && mode == Unpack && ::pread(descriptor_, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b)
    inflater_ = std::make_unique<Inflater>();
  if (!regular) ::close(descriptor_);
  CHECK_AS(IoError, regular, "read: ", file.string(), ": is not a regular file");
  file_size_ = static_cast<uint64_t>(status.st_size);
}

ByteReader::~ByteReader() { ::close(descriptor_); }

std::string ByteReader::at(uint64_t position) const {
  return str(file_.string(), ": byte ", position, packed() ? " (unpacked)" : "");
}

size_t ByteReader::read(std::span<uint8_t> out) {
  size_t filled = 0;
  while (filled < out.size()) {
    const size_t count = packed() ? inflate_some(out.subspan(filled)) : read_file(out.subspan(filled));
    if (count == 0) break;
    filled += count;
    position_ += count;
  }
  return filled;
}

size_t ByteReader::read_file(std::span<uint8_t> out) {
  ssize_t count;
  do count = ::read(descriptor_, out.data(), out.size());
  while (count < 0 && errno == EINTR);
  CHECK_AS(IoError, count >= 0, "read: ", file_.string(), ": byte ", file_position_, ": ", std::strerror(errno));
  file_position_ += static_cast<uint64_t>(count);
  return static_cast<size_t>(count);
}

// At least one byte, or 0 at the end of the last member: RFC 1952 allows several, one after the other.
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
        CHECK_AS(DataError, z.member_ended, "gzip: ", file_.string(), ": ends at byte ", file_position_,
                 " in the middle of compressed data; the file was cut off");
        return 0;
      }
    }
    if (z.member_ended) {
      inflateReset(&z.stream);
      z.member_ended = false;
    }
    const int code = inflate(&z.stream, Z_NO_FLUSH);
    CHECK_AS(DataError, code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR, "gzip: ", file_.string(),
             ": damaged at about byte ", file_position_ - z.stream.avail_in,
             " of the file: ", z.stream.msg ? z.stream.msg : zError(code));
    z.member_ended = code == Z_STREAM_END;
  }
  return wanted - z.stream.avail_out;
}

void ByteReader::read_exactly(std::span<uint8_t> out, const std::string& what) {
  const uint64_t start = position_;
  const size_t count = read(out);
  CHECK_AS(DataError, count == out.size(), "read: ", at(start + count), ": the data ends here, expected ", out.size(),
           " bytes of ", what, ", found ", count);
}

void ByteReader::expect_end() {
  uint8_t byte;
  CHECK_AS(DataError, read({&byte, 1}) == 0, "read: ", at(position_ - 1), ": expected the end of the data, found more");
}

}  // namespace ringgrad
