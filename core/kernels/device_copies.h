// Lists the copies from one device to another that this thread makes.
#pragma once

#include <cstdint>
#include <vector>

#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {

class DeviceCopies : private KernelObserver {
 public:
  struct Copy {
    int from;
    int to;
    Shape shape;
    int64_t bytes;
  };

  DeviceCopies() { set_current(this); }
  ~DeviceCopies() override { set_current(nullptr); }
  DeviceCopies(const DeviceCopies&) = delete;

  std::vector<Copy> seen;

 private:
  void call(const ObservedCall& call, const std::function<void()>& run) override {
    run();
    if (call.arguments.size() < 2) return;
    const Tensor* to = call.tensor(0);
    const Tensor* from = call.tensor(1);
    if (!to || !from || to->device() == from->device()) return;
    seen.push_back({from->device().index, to->device().index, to->shape(),
                    static_cast<int64_t>(to->nbytes())});
  }
};

}  // namespace ringgrad
