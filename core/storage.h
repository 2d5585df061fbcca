// Reference-counted bytes on one device, with a version counter. All views of a tensor share one Storage.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "ringgrad/core/stream.h"

namespace ringgrad {

class Storage {
 public:
  // Uninitialised bytes from the caching allocator, for work on the device's current stream.
  Storage(size_t nbytes, Device device);
  // Bytes owned by somebody else (a mapped file, shared memory); `release` runs when the last view is gone.
  Storage(void* data, size_t nbytes, Device device, std::function<void()> release);
  ~Storage();
  Storage(const Storage&) = delete;

  void* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }
  Device device() const { return stream_.device; }

  // Counts in-place modifications. A tensor saved for backward compares it on use, and throws when it changed.
  uint32_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void* data_;
  size_t nbytes_;
  Stream stream_;
  std::atomic<uint32_t> version_{0};
  std::function<void()> release_;  // empty: the bytes are the caching allocator's
};

}  // namespace ringgrad
