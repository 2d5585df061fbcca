// Helpers of the fuzz targets. Each target hands bytes to one reader of foreign data, which must
// read them or throw our Error. Everything else, and everything that a sanitizer sees, is a
// finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "ringgrad/core/error.h"

namespace ringgrad {

// The bytes as a file in memory, until the next call.
inline std::filesystem::path as_file(const uint8_t* bytes, size_t size) {
  static const int file = memfd_create("fuzz", 0);
  if (ftruncate(file, 0) != 0 || pwrite(file, bytes, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  return "/proc/self/fd/" + std::to_string(file);
}

template <class Reader>
int reads_or_refuses(Reader reader) {
  try {
    reader();
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace ringgrad
