// Marks each kernel call of the program's first thread as an NVTX range, so that Nsight can tell
// apart the layers that share a kernel: "conv2d bfloat16[512,64,32,32]nhwc …". Only builds with
// RINGGRAD_BENCH have the ranges. If no tool listens, a range costs no more than the text of its
// name. A recorded step has ranges while it is recorded, but not when it is replayed;
// RINGGRAD_CUDA_GRAPHS=0 shows them in every step.
#include <nvtx3/nvToolsExt.h>

#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad::cuda {
namespace {

class NvtxRange {
 public:
  explicit NvtxRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
  ~NvtxRange() { nvtxRangePop(); }
  NvtxRange(const NvtxRange&) = delete;
};

class NvtxRanges final : public KernelObserver {
 public:
  NvtxRanges() { set_current(this); }

  void call(const ObservedCall& call, const std::function<void()>& run) override {
    if (!call.stream.device.is_cuda()) return run();
    const NvtxRange range(call_signature(call.kernel.name(), call.arguments));
    run();
  }
};

NvtxRanges ranges;

}  // namespace
}  // namespace ringgrad::cuda
