#include "ringgrad/nn/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // Without O_NONBLOCK, opening a pipe would wait for somebody to write to it.
  fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  CHECK_AS(IoError, fd_ >= 0, "load: ", path.string(), " cannot be opened: ", std::strerror(errno));
  struct stat status;
  const bool regular = fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) close(fd_);
  CHECK_AS(IoError, regular, "load: ", path.string(), " is not a regular file");
  size_ = static_cast<uint64_t>(status.st_size);
}

InputFile::~InputFile() { close(fd_); }

void InputFile::read_at(uint64_t offset, void* data, size_t bytes) const {
  char* begin = static_cast<char*>(data);
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = pread(fd_, begin + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    CHECK_AS(IoError, n >= 0, "load: ", path_.string(), " cannot be read at byte ", offset + done, ": ",
             std::strerror(errno));
    CHECK_AS(DataError, n > 0, "load: ", path_.string(), " ends at byte ", offset + done, ", expected ", size_,
             " bytes: it was cut while it was read");
    done += static_cast<size_t>(n);
  }
}

}  // namespace ringgrad::nn
