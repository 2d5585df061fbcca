// A vendor library's handles: one for each host thread and device, because a handle belongs to the
// stream that it uses. Private to this folder.
#pragma once

#include <array>
#include <iostream>
#include <mutex>
#include <vector>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/error.h"

namespace ringgrad::cuda {

// Use it as a thread_local object. A thread that ends leaves its handles to the next one that needs
// them, because DataParallel starts new threads in each step. Handles are never destroyed, because
// threads may end after the CUDA runtime.
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

  // Returns this thread's handle. create(&handle) makes it, and returns nullptr or the error.
  // Returns nullptr if none exists while the stream is being captured, because making one allocates
  // and waits. Also returns nullptr on a device on which making one has failed. A library that is
  // incomplete, or does not match the driver's version, is reported once, and then only our kernels
  // are used.
  template <class Create>
  Handle of(Device device, const char* library, Create create) {
    const auto i = static_cast<size_t>(device.index);
    if (own_[i]) return own_[i];
    std::lock_guard lock(mutex());
    if (!idle(i).empty()) {
      own_[i] = idle(i).back();
      idle(i).pop_back();
    } else if (failed(i) || device_backend(device.type).capturing()) {
      return nullptr;
    } else if (const char* error = create(&own_[i])) {
      own_[i] = nullptr;
      failed(i) = true;
      std::cerr << str(library, " does not start on ", device, ": ", error,
                       "; native kernels take its place\n");
    }
    return own_[i];
  }

 private:
  static bool& failed(size_t device) {  // REQUIRES: the mutex, as for the next function
    static auto* const all = new std::array<bool, kDevices>{};
    return (*all)[device];
  }
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
