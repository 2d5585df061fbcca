// Scratch memory of a kernel for its own duration, from the caching allocator: in a steady state it costs two list
// operations and no system call.
#pragma once

#include "ringgrad/core/device/allocator.h"

namespace ringgrad::cpu {

// `count` uninitialised elements, aligned to 64 bytes. T is trivial. Throws OutOfMemoryError.
template <class T>
class Workspace {
 public:
  Workspace(Stream stream, int64_t count)
      : stream_(stream),
        bytes_(static_cast<size_t>(count) * sizeof(T)),
        data_(static_cast<T*>(allocate(stream, bytes_))) {}
  ~Workspace() { deallocate(stream_, data_, bytes_); }
  Workspace(const Workspace&) = delete;

  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  Stream stream_;
  size_t bytes_;
  T* data_;
};

}  // namespace ringgrad::cpu
