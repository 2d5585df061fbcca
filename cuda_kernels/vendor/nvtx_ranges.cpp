// Each kernel call of the program's first thread as a range of NVTX, by which Nsight tells apart the
// layers that share a kernel: "conv2d bfloat16[512,64,32,32]nhwc …". In builds with RINGGRAD_BENCH;
// a range costs nothing where no tool listens but for its name. A recorded step has ranges while it
// is recorded, its replays have none: RINGGRAD_CUDA_GRAPHS=0.
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

  void call(const KernelBase& kernel, Stream stream, std::span<const Tensor* const> arguments,
            const std::function<void()>& run) override {
    if (!stream.device.is_cuda()) return run();
    CallSignature signature(kernel.name());
    for (const Tensor* argument : arguments) signature << (argument ? *argument : Tensor());
    const NvtxRange range(signature.text());
    run();
  }
};

NvtxRanges ranges;

}  // namespace
}  // namespace ringgrad::cuda
