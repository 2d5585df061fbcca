// Counts the copies from one device to another that this thread makes.
#pragma once

#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad::test {

class DeviceCopies : private KernelObserver {
 public:
  DeviceCopies() { set_current(this); }
  ~DeviceCopies() override { set_current(nullptr); }
  DeviceCopies(const DeviceCopies&) = delete;

  int count = 0;

 private:
  void call(const ObservedCall& call, const std::function<void()>& run) override {
    run();
    if (call.arguments.size() < 2) return;
    const Tensor* to = call.tensor(0);
    const Tensor* from = call.tensor(1);
    count += to && from && to->device() != from->device();
  }
};

}  // namespace ringgrad::test
