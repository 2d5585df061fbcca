// Which of a graph's plans runs: the one that was fastest on this device. Private to this folder.
#pragma once

#include <functional>

#include "ringgrad/core/device.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_graph.h"

namespace ringgrad::cuda {

// Runs the graph that `build` makes on `addresses`, and says whether it has: false where cuDNN has
// no plan for it, where an address is not aligned to kGraphAlignment, and where the stream is
// captured before anybody has run `call`. The first time on a kind of device all plans are run and
// timed (core/kernels/autotune.h), so the graph overwrites its outputs and reads nothing of them;
// `call` names everything that plans depend on. A plan is kept for each handle: those of threads
// are not shared, because cuDNN does not promise that every engine allows it.
bool run_fastest(Stream stream, const char* operation, const std::string& call, DType dtype,
                 const std::function<std::shared_ptr<OperationGraph>()>& build,
                 std::span<void* const> addresses);

}  // namespace ringgrad::cuda
