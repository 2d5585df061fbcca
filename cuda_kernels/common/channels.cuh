// Kernels that work per channel: how channels lie in memory, and reductions over everything else.
#pragma once

#include <bit>

#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/launch.h"

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

inline constexpr int64_t kTermsPerLane = 32;

// A reduction over the terms of each channel. Reducer has
//   State                                        an aggregate; State{} changes nothing
//   add(State (&)[kSize], c, offset)             takes one element in of each of kSize channels from c on
//   merge(State&, const State&)                  takes another lane's elements in
//   finish(c, const State&)                      writes the result
//
// Mapping, as in sum.cu: a block takes some columns and a segment of their terms; thread (column, lane) takes every
// lanes-th term. With channels last a column is kSize neighbouring channels, 16 bytes where they allow it, and there
// are as many columns as C needs, up to 32: a warp then reads consecutive memory. Else a column is one channel, and a
// block has one. Segments are merged in order by a second launch.
template <int kSize, class Reducer>
__global__ void __launch_bounds__(kThreads) reduce_channels_kernel(Channels channels, int columns, int64_t segments,
                                                                   Reducer reducer, typename Reducer::State* partials) {
  using State = typename Reducer::State;
  const int lanes = kThreads / columns;
  __shared__ State states[kSize][kThreads];
  const int column = static_cast<int>(threadIdx.x) % columns, lane = static_cast<int>(threadIdx.x) / columns;
  const int64_t segment = blockIdx.x % segments, c = (blockIdx.x / segments * columns + column) * kSize;
  const int64_t first = segment * lanes * kTermsPerLane;
  const int64_t last = min(first + lanes * kTermsPerLane, channels.terms);
  State state[kSize]{};
  if (c < channels.C)
    for (int64_t term = first + lane; term < last; term += lanes) reducer.add(state, c, channels.offset(c, term));
#pragma unroll
  for (int k = 0; k < kSize; ++k) states[k][threadIdx.x] = state[k];
  for (int half = lanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
#pragma unroll
      for (int k = 0; k < kSize; ++k) reducer.merge(states[k][threadIdx.x], states[k][threadIdx.x + half * columns]);
  }
  if (lane != 0 || c >= channels.C) return;
#pragma unroll
  for (int k = 0; k < kSize; ++k) {
    if (partials)
      partials[(c + k) * segments + segment] = states[k][column];
    else
      reducer.finish(c + k, states[k][column]);
  }
}

// One block per channel merges its segments.
template <class Reducer>
__global__ void __launch_bounds__(kThreads)
    merge_segments_kernel(int64_t segments, Reducer reducer, const typename Reducer::State* partials) {
  using State = typename Reducer::State;
  __shared__ State states[kThreads];
  const int64_t c = blockIdx.x;
  State state{};
  for (int64_t s = threadIdx.x; s < segments; s += kThreads) reducer.merge(state, partials[c * segments + s]);
  states[threadIdx.x] = state;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) reducer.merge(states[threadIdx.x], states[threadIdx.x + half]);
  }
  if (threadIdx.x == 0) reducer.finish(c, states[0]);
}

// kSize: how many channels may be loaded at once where they are neighbours, if all the reducer reads is `aligned` so.
template <int kSize, class Reducer>
void reduce_channels(Stream stream, const Channels& channels, bool aligned, const Reducer& reducer) {
  using State = typename Reducer::State;
  constexpr int64_t kMostColumns = 32;
  const bool vectors = channels.last && aligned && channels.C % kSize == 0;
  const int64_t wanted = channels.last ? channels.C / (vectors ? kSize : 1) : 1;
  const auto columns = static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::min(wanted, kMostColumns))));
  const int64_t segment = kThreads / columns * kTermsPerLane;
  const int64_t segments = std::max<int64_t>(1, (channels.terms + segment - 1) / segment);
  const auto bytes = static_cast<int64_t>(sizeof(State)) * channels.C * segments;
  const Tensor partials = segments > 1 ? empty({bytes}, {DType::UInt8, stream.device}) : Tensor();
  State* const states = segments > 1 ? static_cast<State*>(partials.raw_data()) : nullptr;
  launch(vectors ? reduce_channels_kernel<kSize, Reducer> : reduce_channels_kernel<1, Reducer>,
         static_cast<unsigned>(blocks_for(channels.C, vectors ? columns * kSize : columns) * segments), kThreads, 0,
         stream, channels, columns, segments, reducer, states);
  if (segments > 1)
    launch(merge_segments_kernel<Reducer>, static_cast<unsigned>(channels.C), kThreads, 0, stream, segments, reducer,
           static_cast<const State*>(states));
}

}  // namespace ringgrad::cuda
