// Unpacks gzip (RFC 1952) for ByteReader.
#include <zlib.h>

#include <algorithm>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/data/formats/byte_reader.h"

namespace ringgrad {
namespace {

class GzipUnpacker : public Unpacker {
 public:
  // The reader owns this object.
  explicit GzipUnpacker(ByteReader& reader) : reader_(reader) {
    ASSERT(inflateInit2(&stream_, 15 + 16) == Z_OK);  // 32 KiB window, gzip framing
  }
  ~GzipUnpacker() override { inflateEnd(&stream_); }

  size_t unpack(std::span<uint8_t> out) override {
    stream_.next_out = out.data();
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), 1u << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      if (stream_.avail_in == 0 && !refill()) return 0;
      if (member_ended_) {  // a file may have several members
        inflateReset(&stream_);
        member_ended_ = false;
      }
      const int code = inflate(&stream_, Z_NO_FLUSH);
      CHECK_AS(DataError, code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR,
               "gzip: ", reader_.path(), ": damaged at about byte ",
               reader_.file_position() - stream_.avail_in,
               " of the file: ", stream_.msg ? stream_.msg : zError(code));
      member_ended_ = code == Z_STREAM_END;
    }
    return wanted - stream_.avail_out;
  }

 private:
  // Returns false at the end of the last member.
  bool refill() {
    stream_.next_in = input_.data();
    stream_.avail_in = static_cast<uInt>(reader_.read_file(input_));
    CHECK_AS(DataError, stream_.avail_in > 0 || member_ended_, "gzip: ", reader_.path(),
             ": ends at byte ", reader_.file_position(),
             " in the middle of compressed data; the file was cut off");
    return stream_.avail_in > 0;
  }

  ByteReader& reader_;
  z_stream stream_{};
  std::vector<uint8_t> input_ = std::vector<uint8_t>(1 << 16);
  bool member_ended_ = false;
};

BEFORE_MAIN(
    gzip, make_gzip_unpacker = [](ByteReader& reader) -> std::unique_ptr<Unpacker> {
      return std::make_unique<GzipUnpacker>(reader);
    });

}  // namespace
}  // namespace ringgrad
