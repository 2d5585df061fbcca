// Kernels that work per channel: how channels lie in memory, and reductions over everything else.
#pragma once

#include "core/factory.h"
#include "cuda_kernels/common/device_types.cuh"
#include "cuda_kernels/launch.h"

namespace ringgrad::cuda {

// x [N, C, …] as [N, C, S] (the memory of NCHW) or as [N·S, C] (of NHWC). A term is one of a channel's N·S elements.
// REQUIRES of the constructor: x is contiguous or channels-last.
struct Channels {
  int64_t C, S, terms;
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
  __device__ __forceinline__ int64_t channel(int64_t offset) const { return last ? offset % C : offset / S % C; }
};

inline constexpr int kChannelThreads = 256;
inline constexpr int64_t kTermsPerLane = 32;

// A reduction over the terms of each channel. Reducer has
//   State                          an aggregate; State{} changes nothing
//   add(State&, c, offset)         takes one element in
//   merge(State&, const State&)    takes another lane's elements in
//   finish(c, const State&)        writes the result
//
// Mapping, as in sum.cu: a block takes kColumns channels and a segment of their terms. With channels last, 32 channels
// × 8 lanes, so that a warp reads neighbouring channels; else 1 channel × 256 lanes. Segments are merged in order by a
// second launch.
template <int kColumns, class Reducer>
__global__ void __launch_bounds__(kChannelThreads)
    reduce_channels_kernel(Channels channels, int64_t segments, Reducer reducer, typename Reducer::State* partials) {
  using State = typename Reducer::State;
  constexpr int kLanes = kChannelThreads / kColumns;
  __shared__ State states[kChannelThreads];
  const int column = static_cast<int>(threadIdx.x) % kColumns, lane = static_cast<int>(threadIdx.x) / kColumns;
  const int64_t segment = blockIdx.x % segments, c = blockIdx.x / segments * kColumns + column;
  const int64_t first = segment * kLanes * kTermsPerLane;
  const int64_t last = min(first + kLanes * kTermsPerLane, channels.terms);
  State state{};
  if (c < channels.C)
    for (int64_t term = first + lane; term < last; term += kLanes) reducer.add(state, c, channels.offset(c, term));
  states[threadIdx.x] = state;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) reducer.merge(states[threadIdx.x], states[threadIdx.x + half * kColumns]);
  }
  if (lane != 0 || c >= channels.C) return;
  if (partials)
    partials[c * segments + segment] = states[column];
  else
    reducer.finish(c, states[column]);
}

// One block per channel merges its segments.
template <class Reducer>
__global__ void __launch_bounds__(kChannelThreads)
    merge_segments_kernel(int64_t segments, Reducer reducer, const typename Reducer::State* partials) {
  using State = typename Reducer::State;
  __shared__ State states[kChannelThreads];
  const int64_t c = blockIdx.x;
  State state{};
  for (int64_t s = threadIdx.x; s < segments; s += kChannelThreads) reducer.merge(state, partials[c * segments + s]);
  states[threadIdx.x] = state;
  for (unsigned half = kChannelThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) reducer.merge(states[threadIdx.x], states[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) reducer.finish(c, states[0]);
}

template <class Reducer>
void reduce_channels(Stream stream, const Channels& channels, const Reducer& reducer) {
  using State = typename Reducer::State;
  constexpr int kMany = 32;
  const int columns = channels.last ? kMany : 1;
  const int64_t segment = kChannelThreads / columns * kTermsPerLane;
  const int64_t segments = std::max<int64_t>(1, (channels.terms + segment - 1) / segment);
  const auto bytes = static_cast<int64_t>(sizeof(State)) * channels.C * segments;
  const Tensor partials = segments > 1 ? empty({bytes}, {DType::UInt8, stream.device}) : Tensor();
  State* const states = segments > 1 ? static_cast<State*>(partials.raw_data()) : nullptr;
  launch(channels.last ? reduce_channels_kernel<kMany, Reducer> : reduce_channels_kernel<1, Reducer>,
         static_cast<unsigned>(blocks_for(channels.C, columns) * segments), kChannelThreads, 0, stream, channels,
         segments, reducer, states);
  if (segments > 1)
    launch(merge_segments_kernel<Reducer>, static_cast<unsigned>(channels.C), kChannelThreads, 0, stream, segments,
           reducer, static_cast<const State*>(states));
}

}  // namespace ringgrad::cuda
