// What registering a hook gives: its removal.
#pragma once

#include <functional>
#include <utility>

namespace ringgrad {

// Names a hook, to remove it. The hook stays without its handle, as long as what it was registered
// on.
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

// Removes its hook when destroyed, for a hook that refers to what may go before.
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
