// The mean and variance of each channel of an image in NHWC memory, step by step. Batch norm's
// forward pass begins with them. In memory x is a matrix of N·H·W rows of C channels, and the terms
// of a sum are C elements apart:
//
//              channels →
//     pixels   . . . . . . . .
//       ↓      . . . . . . . .
//              . . . . . . . .
//              . . . . . . . .
//
//     thread per channel   a warp reads a row's neighbours: good, but C threads are few for a
//                          device that wants some 200,000
//     block per channel    a warp reads down a column: 32 rows, 32 sectors
//     segments             a block takes 32 columns and a segment of the rows
//     vectorised           and each thread 16 bytes of a row, four rows in flight
//
// common/channels.cuh has the last two, and batch_norm.cu uses them.
#include "ringgrad/cuda_kernels/common/moments.cuh"
#include "ringgrad/cuda_kernels/ladders/problem.h"

namespace ringgrad::cuda {
namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    thread_per_channel_kernel(Channels channels, StatsReducer<T> reducer) {
  const int64_t c = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (c >= channels.C) return;
  Moments<Compute<T>> state[1] = {};
  for (int64_t term = 0; term < channels.terms; ++term)
    reducer.add(state, Nothing{}, reducer.template load<1>(channels.offset(c, term)));
  reducer.finish(c, state[0]);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    block_per_channel_kernel(Channels channels, StatsReducer<T> reducer) {
  using State = Moments<Compute<T>>;
  __shared__ State states[kThreads];
  State state[1] = {};
  for (int64_t term = threadIdx.x; term < channels.terms; term += kThreads)
    reducer.add(state, Nothing{}, reducer.template load<1>(channels.offset(blockIdx.x, term)));
  states[threadIdx.x] = state[0];
  merge_lanes<1>(reducer, states, 1, kThreads);
  if (threadIdx.x == 0) reducer.finish(blockIdx.x, states[0]);
}

template <class T>
void run(int step, Stream stream, const Tensor& mean, const Tensor& var, const Tensor& x) {
  using D = Element<T>;
  using A = Accumulator<T>;
  const Channels channels(x);
  const StatsReducer<D> reducer{device_data<T>(x), device_data<A>(mean), device_data<A>(var), {}};
  if (step == 0)
    launch(thread_per_channel_kernel<D>, blocks_for(channels.C, kThreads), kThreads, 0, stream,
           channels, reducer);
  else if (step == 1)
    launch(block_per_channel_kernel<D>, static_cast<unsigned>(channels.C), kThreads, 0, stream,
           channels, reducer);
  else
    reduce_channels<kVectorSize<T>>(stream, channels, step == 3, reducer);
}

LadderProblem problem(Device device, DType dtype, const std::vector<int64_t>& size) {
  const Tensor x = noise({size[0], size[1], size[2], size[2]}, dtype, device, Layout::ChannelsLast);
  const Tensor mean = empty({size[1]}, {DType::Float32, device});
  const Tensor var = empty_like(mean);
  return make_problem(
      3 * static_cast<double>(x.numel()), {x}, {mean, var},
      [=](int step) {
        return step < 3 || size[1] % (kVectorBytes / static_cast<int64_t>(itemsize(dtype))) == 0;
      },
      [=](int step, Stream stream) {
        visit_floating("moments", dtype, [&]<class T>() { run<T>(step, stream, mean, var, x); });
      });
}

[[maybe_unused]] const bool registered = register_ladder(
    {.kernel = "batch_norm_stats",
     .computes = "mean and var [channels] of x [images, channels, side, side]",
     .steps =
         {{"thread per channel", "a thread goes over all pixels of one channel"},
          {"block per channel", "256 threads share the pixels of one channel"},
          {"segments",
           "a block takes 32 channels of a part of the pixels; the last block merges the parts"},
          {"vectorised",
           "and each thread 8 channels of 16 bits at once, four loads in flight: "
           "what batch norm uses"}},
     .sizes = {"images", "channels", "side"},
     .large = {4096, 64, 32},
     .small = {2, 64, 16},
     .problem = problem});

}  // namespace
}  // namespace ringgrad::cuda
