// Runs the plan of a graph that was fastest on this device. Private to this folder.
#pragma once

#include <functional>

#include "ringgrad/core/device.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_graph.h"

namespace ringgrad::cuda {

// Runs the graph that `build` makes on `addresses`, and returns true if it has run. Returns false
// if cuDNN has no plan for it, if an address is not aligned to kGraphAlignment, or if the stream is
// being captured before `call` has ever run. The first time on a kind of device all plans are run
// and timed (core/kernels/autotune.h). So the graph must overwrite its outputs and not read them.
// `call` must name everything that plans depend on. A plan is kept for each handle. Threads do not
// share plans, because cuDNN does not guarantee that every engine allows it.
bool run_fastest(Stream stream, const char* operation, const std::string& call, DType dtype,
                 const std::function<std::shared_ptr<OperationGraph>()>& build,
                 std::span<void* const> addresses);

}  // namespace ringgrad::cuda
