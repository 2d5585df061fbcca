// The bytes of a file from front to back, unpacked on the way where it is a .gz. Memory stays at
// two small buffers whatever the file claims, so a hostile file costs nothing until its reader asks
// for bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/core/base/file.h"

namespace ringgrad {

class ByteReader {
 public:
  enum Mode {
    Unpack,  // gzip is recognised by its first two bytes, whatever the file is called
    Raw,     // the bytes as they are
  };

  // Throws what InputFile does.
  explicit ByteReader(const std::filesystem::path& file, Mode mode = Unpack);
  ~ByteReader();

  // Fills `out` as far as the bytes go and returns their number, less than out.size() only at the
  // end. Throws DataError when gzip data is damaged or cut off, IoError when the disk fails.
  size_t read(std::span<uint8_t> out);

  // Fills `out` entirely. Throws DataError, naming `what` was expected and where the bytes end.
  void read_exactly(std::span<uint8_t> out, const std::string& what);
  // Throws DataError when there is any byte left.
  void expect_end();

  uint64_t file_size() const { return file_.size(); }  // on the disk
  bool packed() const { return inflater_ != nullptr; }
  uint64_t position() const { return position_; }  // bytes handed out, after unpacking

  // "FILE: byte 16": how errors name the place at `position`.
  std::string at(uint64_t position) const;

 private:
  struct Inflater;
  size_t read_file(std::span<uint8_t> out);
  size_t inflate_some(std::span<uint8_t> out);

  InputFile file_;
  uint64_t file_position_ = 0;
  uint64_t position_ = 0;
  std::unique_ptr<Inflater> inflater_;
};

}  // namespace ringgrad
