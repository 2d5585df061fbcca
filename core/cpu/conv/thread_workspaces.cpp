#include "ringgrad/core/cpu/conv/thread_workspaces.h"

#include <new>

#include "ringgrad/core/device/parallel.h"

namespace ringgrad::conv {
namespace {

constexpr int64_t kLine = 16;  // floats of a cache line

// Slices start an odd number of cache lines apart, so that two threads on one core do not meet in the same cache sets.
int64_t slice_stride(int64_t floats) { return ((floats + kLine - 1) / kLine + 1) / 2 * 2 * kLine + kLine; }

}  // namespace

ThreadWorkspaces::ThreadWorkspaces(Stream stream, int64_t floats_per_thread)
    : stride_(slice_stride(floats_per_thread + kLine)),
      count_(thread_count(stream)),
      memory_(stream, stride_ * count_) {
  for (int64_t i = 0; i < count_; ++i) new (memory_.data() + i * stride_) std::atomic<bool>(false);
}

// A thread mostly finds the slice it had before, which its cache still holds: those of the others are taken.
ThreadWorkspaces::Slice::Slice(ThreadWorkspaces& owner) {
  for (int64_t i = 0;; i = (i + 1) % owner.count_) {
    float* const start = owner.memory_.data() + i * owner.stride_;
    busy_ = std::launder(reinterpret_cast<std::atomic<bool>*>(start));
    data_ = start + kLine;
    if (!busy_->exchange(true, std::memory_order_acquire)) return;
  }
}

}  // namespace ringgrad::conv
