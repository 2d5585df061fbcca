// launch(): the only way to start a kernel, under nvcc and under the emulator. <<<>>> is not used.
#pragma once

#include <algorithm>

#include <cuda_runtime.h>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"

namespace ringgrad::cuda {

inline constexpr size_t kSharedBytesWithoutAsking = 48 * 1024;

// Only Hopper has clusters, whose sizes divide the grid's. A launch that overlaps the previous one
// may begin before that has ended: see wait_for_previous_launch() in common/hopper.cuh.
struct LaunchOptions {
  dim3 cluster = 1;
  bool overlaps_previous = false;
};

// Queues kernel(args...) on `stream`: grid × block threads, `shared_bytes` of dynamic shared memory
// per block. A grid without blocks does nothing. Throws CudaError that names the current operation.
// REQUIRES: trivially copyable arguments; pointers among them belong to the stream's device.
template <class... Params, class... Args>
void launch_with(const LaunchOptions& options, void (*kernel)(Params...), dim3 grid, dim3 block,
                 size_t shared_bytes, Stream stream, Args&&... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  const DeviceGuard guard(stream.device);
  if (shared_bytes > kSharedBytesWithoutAsking)
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)));
  cudaLaunchAttribute attributes[2];
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = native(stream);
  config.attrs = attributes;
  const dim3 cluster = options.cluster;
  if (const unsigned blocks = cluster.x * cluster.y * cluster.z; blocks > 1) {
    constexpr unsigned kPortable = 8;
    if (blocks > kPortable)
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster.x;
    attribute.val.clusterDim.y = cluster.y;
    attribute.val.clusterDim.z = cluster.z;
  }
  if (options.overlaps_previous) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  CUDA_CHECK(
      cudaLaunchKernelEx(&config, kernel, static_cast<Params>(static_cast<Args&&>(args))...));
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes, Stream stream,
            Args&&... args) {
  launch_with({}, kernel, grid, block, shared_bytes, stream, static_cast<Args&&>(args)...);
}

// Returns the number of blocks as a grid's first dimension. Throws ShapeError if it is too large.
inline unsigned grid_of(int64_t blocks) {
  constexpr int64_t kMost = 0x7fffffff;
  if (blocks > kMost)
    throw ShapeError(str(current_op(), ": ", blocks, " blocks of threads, a launch has at most ",
                         kMost, "; split the tensor"));
  return static_cast<unsigned>(blocks);
}

// Returns how many blocks of `threads` threads cover n items, one each.
inline unsigned blocks_for(int64_t n, int64_t threads) {
  return grid_of((n + threads - 1) / threads);
}

// The same for kernels whose threads take every (grid × block)-th item. It is enough blocks to fill
// the device a few times, so that the tail is short and every thread's fixed cost is amortised.
inline unsigned grid_stride_blocks(Stream stream, int64_t n, int64_t threads) {
  // It is not a power of two, because such strides would collide in the caches.
  constexpr int64_t kBlocksPerMultiprocessor = 33;
  return static_cast<unsigned>(std::min((n + threads - 1) / threads,
                                        kBlocksPerMultiprocessor * multiprocessors(stream.device)));
}

// The threads of a block, unless a kernel needs another number.
inline constexpr int kThreads = 256;

// Launches a kernel whose threads go from item thread_number() in steps of thread_count()
// (common/strided_index.cuh) to the last of n.
template <class... Params, class... Args>
void launch_elements(Stream stream, int64_t n, void (*kernel)(Params...), const Args&... args) {
  launch(kernel, grid_stride_blocks(stream, n, kThreads), kThreads, 0, stream, args...);
}

}  // namespace ringgrad::cuda
