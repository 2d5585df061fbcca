// Counts the copies from one device to another that this thread makes.
#pragma once

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/nn/layers.h"

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

// A network of two layers with batch norm between them: six parameters, and buffers of two dtypes.
struct NormedMlp : nn::Module {
  nn::Linear first{6, 8};
  nn::BatchNorm1d bn{8};
  nn::Linear last{8, 3};
  NormedMlp() {
    register_module("first", first);
    register_module("bn", bn);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) override { return last(relu(bn(first(x)))); }
};

}  // namespace ringgrad::test
