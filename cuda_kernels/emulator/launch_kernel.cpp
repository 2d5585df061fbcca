// Emulated launches: the blocks of a grid run on the threads of the first CPU device. Blocks do not
// wait for each other, so any block may run on any thread in any order. Each thread keeps one
// Block, whose stacks the next launch reuses.

#include <cstddef>
#include <cstring>
#include <new>

#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/guarded_memory.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace ringgrad::emulator {
namespace {

constexpr unsigned kMaxGridYZ = 65535;
constexpr unsigned kMaxPortableCluster = 8;

struct Attributes {
  dim3 cluster;
  bool overlaps = false;
};

Attributes attributes_of(const cudaLaunchConfig_t& config) {
  Attributes found;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& size = attribute.val.clusterDim;
      found.cluster = dim3(size.x, size.y, size.z);
    } else {
      found.overlaps = attribute.val.programmaticStreamSerializationAllowed != 0;
    }
  }
  return found;
}

std::string wrong_cluster(dim3 cluster, dim3 grid) {
  const uint64_t blocks = uint64_t{cluster.x} * cluster.y * cluster.z;
  if (blocks == 0 || blocks > kMaxCluster)
    return str("a cluster of ", blocks, " blocks, expected 1 to ", kMaxCluster);
  if (grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
    return str("grid (", grid.x, ", ", grid.y, ", ", grid.z, ") is no multiple of the cluster (",
               cluster.x, ", ", cluster.y, ", ", cluster.z, ")");
  return "";
}

std::string wrong_configuration(const cudaLaunchConfig_t& config, const Attributes& attributes) {
  const dim3 g = config.gridDim;
  const dim3 b = config.blockDim;
  const auto shape = [](dim3 d) { return str("(", d.x, ", ", d.y, ", ", d.z, ")"); };
  const uint64_t threads = uint64_t{b.x} * b.y * b.z;
  if (threads == 0 || threads > kMaxThreads || b.z > 64)
    return str("block ", shape(b), ", expected 1 to ", kMaxThreads, " threads");
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > kMaxGridYZ || g.z > kMaxGridYZ)
    return str("grid ", shape(g), ", expected at least one block and y, z up to ", kMaxGridYZ);
  if (const std::string problem = wrong_cluster(attributes.cluster, g); !problem.empty())
    return problem;
  if (config.dynamicSmemBytes > kMaxSharedBytes)
    return str(config.dynamicSmemBytes, " bytes of shared memory, expected at most ",
               kMaxSharedBytes);
  return "";
}

// With an observer: one launch at a time, one block after another.
void run_observed(const Grid& grid, int device) {
  static std::mutex one_at_a_time;
  std::lock_guard lock(one_at_a_time);
  observer->begin_launch(grid, device);
  for (int64_t index = 0; index < grid.clusters(); ++index) Block::mine().run(grid, index);
  observer->end_launch();
}

void run_grid(const Grid& grid, int device) {
  const int64_t clusters = grid.clusters();
  if (observer) return run_observed(grid, device);
  const Stream host = current_stream(Device(DeviceType::CPU));
  const int64_t grain = std::max<int64_t>(1, clusters / (8 * thread_count(host)));
  parallel_for(host, clusters, grain, [&](int64_t begin, int64_t end) {
    const DeviceAccess access;
    Block& block = Block::mine();
    for (int64_t index = begin; index < end; ++index) block.run(grid, index);
  });
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void (*body)(const void*),
                   const void* call, size_t bytes) {
  const Attributes attributes = attributes_of(config);
  if (const std::string problem = wrong_configuration(config, attributes); !problem.empty())
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
  if (attributes.cluster.x * attributes.cluster.y * attributes.cluster.z > kMaxPortableCluster) {
    std::lock_guard lock(runtime.mutex);
    if (!runtime.large_clusters.contains({kernel, stream->device}))
      return fail(cudaErrorInvalidConfiguration,
                  str("a cluster of more than ", kMaxPortableCluster, " blocks, which needs ",
                      "cudaFuncAttributeNonPortableClusterSizeAllowed"));
  }
  // Copies of the closure, which a graph makes, share it. A tensor map is aligned to 128.
  constexpr std::align_val_t kAlignment{128};
  const std::shared_ptr<void> storage(::operator new(bytes, kAlignment),
                                      [](void* p) { ::operator delete(p, kAlignment); });
  std::memcpy(storage.get(), call, bytes);
  return runtime.submit(stream,
                        [config, attributes, body, storage, bytes, device = stream->device] {
                          run_grid({config.gridDim, config.blockDim, config.dynamicSmemBytes, body,
                                    storage.get(), bytes, attributes.cluster, attributes.overlaps},
                                   device);
                        });
}

cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  auto& runtime = Runtime::instance();
  if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
    std::lock_guard lock(runtime.mutex);
    if (value)
      runtime.large_clusters.insert({kernel, current_device()});
    else
      runtime.large_clusters.erase({kernel, current_device()});
    return cudaSuccess;
  }
  if (value < 0 || static_cast<size_t>(value) > kMaxSharedBytes)
    return fail(cudaErrorInvalidValue,
                str(value, " bytes of shared memory, expected at most ", kMaxSharedBytes));
  std::lock_guard lock(runtime.mutex);
  runtime.shared_bytes[{kernel, current_device()}] = static_cast<size_t>(value);
  return cudaSuccess;
}

}  // namespace ringgrad::emulator
