// For the tests of data/: temporary folders, bytes to and from files, gzip, and the text of an
// error.
#pragma once

#include <stdlib.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/core/error.h"

namespace ringgrad::test {

using Bytes = std::vector<uint8_t>;

// A new empty folder, removed with all it holds at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "ringgrad-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp: " + name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

  // The names of what lies in it.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      result.push_back(entry.path().filename());
    return result;
  }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& file, std::span<const uint8_t> bytes) {
  // Some file systems wait for the disk when a file is truncated and written anew.
  std::filesystem::remove(file);
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("write: " + file.string());
}

inline Bytes read_bytes(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

// One gzip member holding `bytes`, then `zeros` zero bytes.
inline Bytes gzip(std::span<const uint8_t> bytes, uint64_t zeros = 0) {
  z_stream z{};
  if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  Bytes out;
  Bytes chunk(1 << 16);
  Bytes zero(1 << 16);
  auto feed = [&](std::span<const uint8_t> input, int flush) {
    z.next_in = const_cast<uint8_t*>(input.data());
    z.avail_in = static_cast<uInt>(input.size());
    do {
      z.next_out = chunk.data();
      z.avail_out = static_cast<uInt>(chunk.size());
      deflate(&z, flush);
      out.insert(out.end(), chunk.data(), z.next_out);
    } while (z.avail_out == 0);
  };
  feed(bytes, Z_NO_FLUSH);
  for (; zeros > 0; zeros -= std::min<uint64_t>(zeros, zero.size()))
    feed({zero.data(), static_cast<size_t>(std::min<uint64_t>(zeros, zero.size()))}, Z_NO_FLUSH);
  feed({}, Z_FINISH);
  deflateEnd(&z);
  return out;
}

// Returns the text of the error that `body` throws, if it is an ErrorType or derived from it; "" if
// it throws nothing.
template <class ErrorType, class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace ringgrad::test
