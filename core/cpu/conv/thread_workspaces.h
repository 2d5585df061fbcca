// Scratch memory for the units of a parallel_for.
#pragma once

#include <atomic>
#include <cstdint>

#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::conv {

using cpu::Workspace;

// One slice of scratch for each thread that may be inside a parallel_for of this stream. They are allocated together
// and up front: which thread runs which unit varies, what a step takes from the allocator must not.
class ThreadWorkspaces {
 public:
  ThreadWorkspaces(Stream stream, int64_t floats_per_thread);
  ThreadWorkspaces(const ThreadWorkspaces&) = delete;

  // A slice of its own for the current unit.
  class Slice {
   public:
    Slice(ThreadWorkspaces& owner);
    ~Slice() { busy_->store(false, std::memory_order_release); }
    Slice(const Slice&) = delete;
    float* data() const { return data_; }

   private:
    std::atomic<bool>* busy_;
    float* data_;
  };

 private:
  int64_t stride_;  // floats from slice to slice; each begins with a cache line that holds its busy flag
  int64_t count_;
  Workspace<float> memory_;
};

}  // namespace ringgrad::conv
