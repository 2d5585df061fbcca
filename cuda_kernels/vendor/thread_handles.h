// A vendor library's handles: one for each host thread and device, because a handle belongs to the stream it works on.
// Private to this folder.
#pragma once

#include <array>
#include <mutex>
#include <vector>

namespace ringgrad::cuda {

// To be made thread_local. A thread that ends leaves its handles to the next that asks: DataParallel starts new threads
// in each step. None is ever destroyed, because threads may end after the CUDA runtime.
template <class Handle>
class ThreadHandles {
 public:
  static constexpr int kDevices = 64;

  ThreadHandles() = default;
  ThreadHandles(const ThreadHandles&) = delete;
  ~ThreadHandles() {
    std::lock_guard lock(mutex());
    for (size_t i = 0; i < kDevices; ++i)
      if (own_[i]) idle(i).push_back(own_[i]);
  }

  // nullptr where there is none yet, for the caller to fill.
  Handle& of(int device) {
    const auto i = static_cast<size_t>(device);
    if (!own_[i]) {
      std::lock_guard lock(mutex());
      if (!idle(i).empty()) {
        own_[i] = idle(i).back();
        idle(i).pop_back();
      }
    }
    return own_[i];
  }

 private:
  static std::mutex& mutex() {
    static auto* const one = new std::mutex;
    return *one;
  }
  static std::vector<Handle>& idle(size_t device) {
    static auto* const all = new std::array<std::vector<Handle>, kDevices>;
    return (*all)[device];
  }

  std::array<Handle, kDevices> own_{};
};

}  // namespace ringgrad::cuda
