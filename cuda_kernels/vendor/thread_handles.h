// A vendor library's handles: one for each host thread and device, because a handle belongs to the
// stream it works on. Private to this folder.
#pragma once

#include <array>
#include <iostream>
#include <mutex>
#include <vector>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/error.h"

namespace ringgrad::cuda {

// To be made thread_local. A thread that ends leaves its handles to the next that asks:
// DataParallel starts new threads in each step. None is ever destroyed, because threads may end
// after the CUDA runtime.
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

  // This thread's handle, made by create(&handle), which returns nullptr or what went wrong.
  // nullptr while the stream is captured and there is none yet, because making one allocates and
  // waits; and on a device on which one could not be made. A library that is incomplete, or not of
  // the driver's version, is reported once, and our kernels go on alone.
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
  static bool& failed(size_t device) {  // under the mutex, as the next
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
