#include "ringgrad/distributed/os/file_descriptor.h"

#include <pthread.h>

#include <atomic>
#include <bit>
#include <cstdint>

#include "ringgrad/core/base/before_main.h"

namespace ringgrad {
namespace {

// numbers; processes have fewer
constexpr int kBits = 64;
constexpr int kMost = 1 << 20;
constinit std::atomic<uint64_t> kept_from_forks[kMost / kBits];

// Keeps the descriptor's number in use, so that a copied FileDescriptor does not close another file
// when it closes its number.
void in_child() {
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int word = 0; word < kMost / kBits; ++word)
    for (uint64_t left = kept_from_forks[word].exchange(0); left != 0; left &= left - 1)
      dup3(nothing, word * kBits + std::countr_zero(left), O_CLOEXEC);
  close(nothing);
}

BEFORE_MAIN(descriptors, pthread_atfork(nullptr, nullptr, in_child));

}  // namespace

FileDescriptor& FileDescriptor::keep_from_forks() {
  if (fd_ >= 0 && fd_ < kMost) kept_from_forks[fd_ / kBits] |= uint64_t{1} << fd_ % kBits;
  return *this;
}

void FileDescriptor::share_with_forks(int fd) {
  if (fd >= 0 && fd < kMost) kept_from_forks[fd / kBits] &= ~(uint64_t{1} << fd % kBits);
}

}  // namespace ringgrad
