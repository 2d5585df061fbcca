// The handle that registering a hook returns, with which the hook can be removed.
#pragma once

#include <functional>
#include <utility>

namespace ringgrad {

// Refers to a hook in order to remove it. Without the handle the hook stays as long as the object
// on which it was registered.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove) : remove_(std::move(remove)) {}
  void remove() {
    if (remove_) std::exchange(remove_, nullptr)();
  }

 private:
  std::function<void()> remove_;
};

// Removes its hook when destroyed. For a hook that refers to an object which may be destroyed
// before the tensor.
class ScopedHook {
 public:
  explicit ScopedHook(HookHandle handle) : handle_(std::move(handle)) {}
  ScopedHook(ScopedHook&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  ScopedHook& operator=(ScopedHook&&) = delete;
  ~ScopedHook() { handle_.remove(); }

 private:
  HookHandle handle_;
};

}  // namespace ringgrad
