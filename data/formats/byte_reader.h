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

// Unpacks what a ByteReader finds in its file.
class Unpacker {
 public:
  virtual ~Unpacker() = default;
  // At least one byte of `out`, or 0 at the end. Returns the number. Throws DataError.
  virtual size_t unpack(std::span<uint8_t> out) = 0;
};

class ByteReader {
 public:
  enum Mode {
    Unpack,  // gzip is recognised by its first two bytes, whatever the file is called
    Raw,     // the bytes as they are
  };

  // Throws what InputFile does, and DataError where the file is packed and this program cannot
  // unpack it.
  explicit ByteReader(const std::filesystem::path& file, Mode mode = Unpack);
  ByteReader(const ByteReader&) = delete;

  // Fills `out` as far as the bytes go and returns their number, less than out.size() only at the
  // end. Throws DataError when gzip data is damaged or cut off, IoError when the disk fails.
  size_t read(std::span<uint8_t> out);

  // Fills `out` entirely. Throws DataError, naming `what` was expected and where the bytes end.
  void read_exactly(std::span<uint8_t> out, const std::string& what);
  // Throws DataError when there is any byte left.
  void expect_end();

  uint64_t file_size() const { return file_.size(); }  // on the disk
  bool packed() const { return unpacker_ != nullptr; }
  uint64_t position() const { return position_; }  // bytes handed out, after unpacking

  // "FILE: byte 16": how errors name the place at `position`.
  std::string at(uint64_t position) const;

  // The next bytes of the file itself, as many as there are, at most out.size(); and where they
  // end. For an Unpacker.
  size_t read_file(std::span<uint8_t> out);
  uint64_t file_position() const { return file_position_; }
  std::string path() const { return file_.path().string(); }

 private:
  InputFile file_;
  uint64_t file_position_ = 0;
  uint64_t position_ = 0;
  std::unique_ptr<Unpacker> unpacker_;
};

// Makes the Unpacker for gzip; null in a program without gzip.cpp, which sets it.
using MakeUnpacker = std::unique_ptr<Unpacker> (*)(ByteReader& reader);
extern constinit MakeUnpacker make_gzip_unpacker;

}  // namespace ringgrad
