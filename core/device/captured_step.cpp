#include "ringgrad/core/device/captured_step.h"

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/allocator.h"

namespace ringgrad {
namespace {

// After this many runs everything that is made at first use exists: gradients, the optimizer's
// state, tuned algorithms.
constexpr int kRunsBefore = 2;

}  // namespace

bool CapturedStep::possible(Device device) {
  return device.is_cuda() && variable("RINGGRAD_CUDA_GRAPHS") != "0";
}

CapturedStep::CapturedStep(Device device, std::function<void()> step)
    : device_(device), step_(std::move(step)) {}

void CapturedStep::operator()() {
  if (!graph_ && runs_++ < kRunsBefore) return step_();
  ++captured_runs;
  if (!graph_) {
    // The graph needs as much memory of its own as the earlier runs have left in the cache.
    empty_cache(device_);
    graph_ = device_backend(device_.type).capture(device_.index, step_);
  }
  graph_->launch(current_stream(device_));
}

}  // namespace ringgrad
