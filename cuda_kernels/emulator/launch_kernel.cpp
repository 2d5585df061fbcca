// Emulated launches: the blocks of a grid run on the threads of the first CPU device. Blocks do not
// wait for each other, so any block may run on any thread in any order. Each thread keeps one
// Block, whose stacks the next launch reuses.

#include <cstddef>
#include <cstring>

#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/guarded_memory.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace ringgrad::emulator {
namespace {

constexpr unsigned kMaxGridYZ = 65535;
constexpr size_t kSharedBytesUnasked = 48 * 1024;  // more must be requested, per kernel and device

std::string wrong_configuration(const cudaLaunchConfig_t& config) {
  const dim3 g = config.gridDim;
  const dim3 b = config.blockDim;
  const auto shape = [](dim3 d) { return str("(", d.x, ", ", d.y, ", ", d.z, ")"); };
  const uint64_t threads = uint64_t{b.x} * b.y * b.z;
  if (threads == 0 || threads > kMaxThreads || b.z > 64)
    return str("block ", shape(b), ", expected 1 to ", kMaxThreads, " threads");
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > kMaxGridYZ || g.z > kMaxGridYZ)
    return str("grid ", shape(g), ", expected at least one block and y, z up to ", kMaxGridYZ);
  if (config.dynamicSmemBytes > kMaxSharedBytes)
    return str(config.dynamicSmemBytes, " bytes of shared memory, expected at most ",
               kMaxSharedBytes);
  return "";
}

// With an observer: one launch at a time, one block after another.
void run_observed(const Grid& grid, int device, int64_t blocks) {
  static std::mutex one_at_a_time;
  std::lock_guard lock(one_at_a_time);
  observer->begin_launch(grid, device);
  for (int64_t index = 0; index < blocks; ++index) Block::mine().run(grid, index);
  observer->end_launch();
}

void run_grid(const Grid& grid, int device) {
  const int64_t blocks = int64_t{grid.grid.x} * grid.grid.y * grid.grid.z;
  if (observer) return run_observed(grid, device, blocks);
  const Stream host = current_stream(Device(DeviceType::CPU));
  const int64_t grain = std::max<int64_t>(1, blocks / (8 * thread_count(host)));
  parallel_for(host, blocks, grain, [&](int64_t begin, int64_t end) {
    const DeviceAccess access;
    Block& block = Block::mine();
    for (int64_t index = begin; index < end; ++index) block.run(grid, index);
  });
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void (*body)(const void*),
                   const void* call, size_t bytes) {
  if (const std::string problem = wrong_configuration(config); !problem.empty())
    return fail(cudaErrorInvalidConfiguration, problem);
  auto& runtime = Runtime::instance();
  const auto stream = runtime.find_stream("a launch", config.stream);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->device != current_device())
    return fail(cudaErrorInvalidResourceHandle,
                str("a launch on a stream of device ", stream->device,
                    " while the current device is ", current_device()));
  if (config.dynamicSmemBytes > kSharedBytesUnasked) {
    std::lock_guard lock(runtime.mutex);
    const auto asked = runtime.shared_bytes.find({kernel, stream->device});
    const size_t most = asked == runtime.shared_bytes.end() ? kSharedBytesUnasked : asked->second;
    if (config.dynamicSmemBytes > most)
      return fail(
          cudaErrorInvalidValue,
          str(config.dynamicSmemBytes, " bytes of shared memory, where cudaFuncSetAttribute",
              " has asked for ", most, " on device ", stream->device));
  }
  // Copies of the closure, which a graph makes, share it.
  const auto storage =
      std::make_shared<std::vector<std::max_align_t>>(bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(storage->data(), call, bytes);
  return runtime.submit(stream, [config, body, storage, bytes, device = stream->device] {
    run_grid(
        {config.gridDim, config.blockDim, config.dynamicSmemBytes, body, storage->data(), bytes},
        device);
  });
}

cudaError_t allow_shared_bytes(const void* kernel, int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > kMaxSharedBytes)
    return fail(cudaErrorInvalidValue,
                str(bytes, " bytes of shared memory, expected at most ", kMaxSharedBytes));
  auto& runtime = Runtime::instance();
  std::lock_guard lock(runtime.mutex);
  runtime.shared_bytes[{kernel, current_device()}] = static_cast<size_t>(bytes);
  return cudaSuccess;
}

}  // namespace ringgrad::emulator
