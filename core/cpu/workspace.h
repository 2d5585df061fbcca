// Scratch memory for the duration of a kernel, from the caching allocator. In a steady state it
// costs two list operations and no system call. It is one array (Workspace), or one for each thread
// (ThreadWorkspaces).
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::cpu {

// `count` uninitialised elements, aligned to 64 bytes. Kernels need scratch memory of sizes that
// depend on shapes, many times a step; a std::vector would clear it and call malloc. T is trivial.
// Throws OutOfMemoryError.
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

// One slice of scratch memory for each thread that may be inside a parallel_for of this stream.
// They are allocated together and in advance: which thread runs which unit varies, but what a step
// takes from the allocator must not.
class ThreadWorkspaces {
 public:
  ThreadWorkspaces(Stream stream, int64_t floats_per_thread)
      : stride_(slice_stride(floats_per_thread + kLine)),
        count_(thread_count(stream)),
        memory_(stream, stride_ * count_) {
    for (int64_t i = 0; i < count_; ++i)
      new (memory_.data() + i * stride_) std::atomic<bool>(false);
  }
  ThreadWorkspaces(const ThreadWorkspaces&) = delete;

  // A slice that belongs to the current unit.
  class Slice {
   public:
    // A thread mostly finds the slice that it had before, which its cache still holds, because the
    // others are taken.
    explicit Slice(ThreadWorkspaces& owner) {
      for (int64_t i = 0;; i = (i + 1) % owner.count_) {
        float* const start = owner.memory_.data() + i * owner.stride_;
        busy_ = std::launder(reinterpret_cast<std::atomic<bool>*>(start));
        data_ = start + kLine;
        if (!busy_->exchange(true, std::memory_order_acquire)) return;
      }
    }
    ~Slice() { busy_->store(false, std::memory_order_release); }
    Slice(const Slice&) = delete;
    float* data() const { return data_; }

   private:
    std::atomic<bool>* busy_;
    float* data_;
  };

 private:
  static constexpr int64_t kLine = 16;  // floats of a cache line
  // A thread that finds a slice taken tries the next. There are as many slices as threads, so one
  // is always free. Slices start an odd number of cache lines apart, so that two threads on one
  // core do not use the same sets.
  static int64_t slice_stride(int64_t floats) {
    return ((floats + kLine - 1) / kLine + 1) / 2 * 2 * kLine + kLine;
  }

  // The distance between slices, in floats. Each begins with a cache line for its busy flag.
  int64_t stride_;
  int64_t count_;
  Workspace<float> memory_;
};

}  // namespace ringgrad::cpu
