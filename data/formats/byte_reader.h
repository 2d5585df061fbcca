// Reads the bytes of a file from front to back, and unpacks a .gz on the way. It uses only two
// small buffers, whatever the file claims. So a hostile file costs nothing until its reader asks
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

// Unpacks the content of a ByteReader's file.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Writes at least one byte to `out` and returns their number, or 0 at the end. Throws DataError.
  virtual size_t unpack(std::span<uint8_t> out) = 0;
};

class ByteReader {
 public:
  enum Mode {
    Unpack,  // recognises gzip by its first two bytes, whatever the file's name
    Raw,     // gives the bytes unchanged
  };

  // Throws what InputFile throws, and DataError if the file is packed and this program cannot
  // unpack it.
  explicit ByteReader(const std::filesystem::path& file, Mode mode = Unpack);
  ByteReader(const ByteReader&) = delete;

  // Fills `out` as far as possible and returns the number of bytes, which is less than out.size()
  // only at the end. Throws DataError if gzip data is damaged or cut off, and IoError if the disk
  // fails.
  size_t read(std::span<uint8_t> out);

  // Fills `out` entirely. Otherwise throws DataError that says that `what` was expected and where
  // the bytes end.
  void read_exactly(std::span<uint8_t> out, const std::string& what);
  // Throws DataError if any byte is left.
  void expect_end();

  uint64_t file_size() const { return file_.size(); }  // size on disk
  bool packed() const { return unpacker_ != nullptr; }
  uint64_t position() const { return position_; }  // number of bytes delivered, after unpacking

  // Returns "FILE: byte 16", which errors use for `position`.
  std::string at(uint64_t position) const;

  // For an Unpacker: reads the next bytes of the file itself, at most out.size(), and returns their
  // number. file_position() is the position after them.
  size_t read_file(std::span<uint8_t> out);
  uint64_t file_position() const { return file_position_; }
  std::string path() const { return file_.path().string(); }

 private:
  InputFile file_;
  uint64_t file_position_ = 0;
  uint64_t position_ = 0;
  std::unique_ptr<Unpacker> unpacker_;
};

// Makes the Unpacker for gzip. gzip.cpp sets it; without that file it is null.
using MakeUnpacker = std::unique_ptr<Unpacker> (*)(ByteReader& reader);
extern constinit MakeUnpacker make_gzip_unpacker;

}  // namespace ringgrad
