// Kernels that work per channel: the position of channels in memory, and reductions over all other
// dimensions.
#pragma once

#include <bit>

#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/common/last_block.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {

// x [N, C, …] as [N, C, S] (the memory of NCHW) or as [N·S, C] (that of NHWC). A term is one of a
// channel's N·S elements. REQUIRES for the constructor: x is contiguous or channels-last.
struct Channels {
  int64_t C;
  int64_t S;
  int64_t terms;
  bool last;  // channels are neighbours in memory

  explicit Channels(const Tensor& x) : C(x.shape()[1]), S(1), terms(0), last(!x.is_contiguous()) {
    for (int d = 2; d < x.dim(); ++d) S *= x.shape()[d];
    terms = x.shape()[0] * S;
    last = last || S == 1;
  }

  __device__ __forceinline__ int64_t offset(int64_t c, int64_t term) const {
    return last ? term * C + c : (term / S * C + c) * S + term % S;
  }
  // The channel of the element at an offset.
  __device__ __forceinline__ int64_t channel(int64_t offset) const {
    if (!last) return offset / S % C;
    // A division takes as long as all other work on an element.
    return (C & (C - 1)) == 0 ? offset & (C - 1) : offset % C;
  }
};

// The kernels here cross memory once, and their blocks stay to the end. This many blocks fit on a
// multiprocessor with 128 registers per thread, which keep several loads in flight: an H200 needs
// some 22 KB of loads on a multiprocessor. The fixed cost of a thread is paid once for as many
// elements as possible.
inline constexpr int kBlocksOfWave = 2;
#define RINGGRAD_ONE_WAVE \
  __launch_bounds__(::ringgrad::cuda::kThreads, ::ringgrad::cuda::kBlocksOfWave)

// A thread loads up to this many states before it needs the first, and merges them at once.
inline constexpr int kMergedAtOnce = 8;

// Merges the states of each column's lanes into the first lane's state. State (k, lane, column) is
// at k · kThreads + lane · columns + column. A thread merges up to kMergedAtOnce of them at a time,
// so 32 lanes take two turns.
template <int kSize, class Reducer, class State>
__device__ __forceinline__ void merge_lanes(const Reducer& reducer, State* states, int columns,
                                            int lanes) {
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % columns;
  while (lanes > 1) {
    const int left = max(1, lanes / kMergedAtOnce);
    __syncthreads();
    for (int i = thread / columns; i < left * kSize; i += kThreads / columns) {
      State* const first = states + i / left * kThreads + i % left * columns + column;
      State others[kMergedAtOnce - 1]{};
#pragma unroll
      for (int other = 1; other < kMergedAtOnce; ++other)
        if (other * left < lanes) others[other - 1] = first[other * left * columns];
      reducer.merge(*first, others);
    }
    lanes = left;
  }
}

// A reduction over the terms of each channel. Reducer has
//   State                                   an aggregate; State{} changes nothing
//   kInFlight                               terms that a thread loads before it needs the first
//   constants<kSize>(c)                     what add() needs to know of kSize channels from c on,
//                                           read once
//   load<kSize>(offset)                     a term of each of kSize channels
//   add(State (&)[kSize], constants, term)  adds a term
//   merge(State&, const State (&)[])        adds other lanes' states, several at once
//   finish(c, const State&)                 writes the result
//
// Mapping, as in sum.cu: a block takes some columns and a segment of their terms. Thread (column,
// lane) takes every lanes-th term. With channels last a column is kSize neighbouring channels, 16
// bytes if possible. There are as many columns as C needs, up to 128 bytes of a row, so a warp
// reads whole lines. Otherwise a column is one channel, and a block has one column. The number of
// segments fills the device once. The last block to finish merges the segments of its channels, in
// an order that depends only on their number.
//
// Blocks are narrow because nothing else runs while the last block merges. Its threads divide the
// segments of each channel: the fewer channels a block has, the more threads serve each of them. A
// merge waits once for memory. The table is for ResNet-18's images (batch 512, bfloat16, an H200's
// 132 multiprocessors). It has the number of merges that follow each other, which
// tests/cuda/emulator_merges_test.cpp counts, and the microseconds of a forward batch norm,
// statistics and apply:
//
//                   merges by 32 columns,             merges by 8 columns,
//   images          one state at a time    measured   8 states at a time    predicted,
//                                                                           not yet run on a GPU
//   64 x 32 x 32             71               88               11              58
//   128 x 16 x 16           133               77                7              36
//   256 x 8 x 8             259               99                5              22
//   512 x 4 x 4             131               56                4              13
template <int kSize, class Reducer>
__global__ void RINGGRAD_ONE_WAVE reduce_channels_kernel(Channels channels, int columns,
                                                         int64_t segments, int64_t terms_of_segment,
                                                         Reducer reducer,
                                                         typename Reducer::State* partials,
                                                         unsigned* counters) {
  using State = typename Reducer::State;
  constexpr int kInFlight = Reducer::kInFlight;
  const int lanes = kThreads / columns;
  __shared__ State states[kSize * kThreads];
  const int column = static_cast<int>(threadIdx.x) % columns;
  const int lane = static_cast<int>(threadIdx.x) / columns;
  const int64_t segment = blockIdx.x % segments;
  const int64_t group = blockIdx.x / segments;
  const int64_t c = (group * columns + column) * kSize;
  const int64_t first = segment * terms_of_segment;
  const int64_t last = min(first + terms_of_segment, channels.terms);
  State state[kSize]{};
  if (c < channels.C) {
    const auto constants = reducer.template constants<kSize>(c);
    int64_t term = first + lane;
    for (; term + (kInFlight - 1) * lanes < last; term += kInFlight * lanes) {
      decltype(reducer.template load<kSize>(0)) loaded[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i)
        loaded[i] = reducer.template load<kSize>(channels.offset(c, term + i * lanes));
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) reducer.add(state, constants, loaded[i]);
    }
    for (; term < last; term += lanes)
      reducer.add(state, constants, reducer.template load<kSize>(channels.offset(c, term)));
  }
#pragma unroll
  for (int k = 0; k < kSize; ++k) states[k * kThreads + threadIdx.x] = state[k];
  merge_lanes<kSize>(reducer, states, columns, lanes);

  const int thread = static_cast<int>(threadIdx.x);
  const int width = columns * kSize;
  const int channel = thread % width;
  const int shares = kThreads / width;
  const bool is_first = thread < width;  // the first thread with this channel
  State total{};
  __syncthreads();
  if (is_first) total = states[channel % kSize * kThreads + channel / kSize];
  if (segments > 1) {
    // The states of a group of channels are stored as [segment, channel], so that neighbouring
    // threads read neighbouring states.
    State* const parts = partials + group * segments * width;
    if (is_first) parts[segment * width + channel] = total;
    if (!is_last_of(counters + group, static_cast<unsigned>(segments))) return;
    total = {};
    for (int64_t s = thread / width; s < segments; s += kMergedAtOnce * shares) {
      State others[kMergedAtOnce]{};
#pragma unroll
      for (int i = 0; i < kMergedAtOnce; ++i)
        if (s + i * shares < segments) others[i] = parts[(s + i * shares) * width + channel];
      reducer.merge(total, others);
    }
    states[thread] = total;
    merge_lanes<1>(reducer, states, width, shares);
    total = states[thread];
  }
  if (is_first && group * width + channel < channels.C)
    reducer.finish(group * width + channel, total);
}

// kSize is the number of neighbouring channels that may be loaded at once, if everything that the
// reducer reads is `aligned` for it.
template <int kSize, class Reducer>
static void reduce_channels(Stream stream, const Channels& channels, bool aligned,
                            const Reducer& reducer) {
  using State = typename Reducer::State;
  const bool vectors = channels.last && aligned && channels.C % kSize == 0;
  const int64_t most = vectors ? 8 : 32;  // 128 bytes of a row, or as many as a warp has threads
  const int64_t wanted = channels.last ? channels.C / (vectors ? kSize : 1) : 1;
  const auto columns =
      static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::min(wanted, most))));
  // Each lane gets as many terms as keep every multiprocessor busy, in a multiple of the number in
  // flight. But it gets so few that a float32 sum of them has the precision that core/kernels.h
  // promises. Thousands of groups fill the device by themselves.
  constexpr int64_t kMostTerms = 2048;
  const int64_t lanes = kThreads / columns;
  const int64_t groups = blocks_for(channels.C, vectors ? columns * kSize : columns);
  const int64_t wave = kBlocksOfWave * multiprocessors(stream.device);
  const int64_t step = lanes * Reducer::kInFlight;
  const int64_t share = blocks_for(channels.terms, std::max<int64_t>(1, wave / groups));
  const int64_t segment = groups > kCounters
                              ? std::max(channels.terms, step)
                              : std::clamp<int64_t>(blocks_for(share, step) * step, step,
                                                    std::max(step, kMostTerms * lanes));
  const int64_t segments = std::max<int64_t>(1, blocks_for(channels.terms, segment));
  const auto bytes =
      static_cast<int64_t>(sizeof(State)) * groups * columns * (vectors ? kSize : 1) * segments;
  const Tensor partials = segments > 1 ? empty({bytes}, {DType::UInt8, stream.device}) : Tensor();
  State* const states = segments > 1 ? static_cast<State*>(partials.raw_data()) : nullptr;
  launch(vectors ? reduce_channels_kernel<kSize, Reducer> : reduce_channels_kernel<1, Reducer>,
         grid_of(groups * segments), kThreads, 0, stream, channels, columns, segments, segment,
         reducer, states, block_counters(stream));
}

}  // namespace ringgrad::cuda
