// Mean and variance of each channel, as a Reducer for reduce_channels() of channels.cuh.
#pragma once

#include "ringgrad/cuda_kernels/common/channels.cuh"

namespace ringgrad::cuda {

// Mean and sum of squared deviations of the elements so far (Welford 1962). Two of them are merged
// as in Chan, Golub & LeVeque (1983), eq. 2.1. Sums of x² would cancel if the mean is large against
// the deviation.
template <class A>
struct Moments {
  A count;
  A mean;
  A squares;
};

// kernels::RunningStatistics as pointers; nullptr if undefined.
template <class A>
struct Running {
  A* mean = nullptr;
  A* var = nullptr;
  int64_t* batches = nullptr;
  A momentum = 0;
};

struct Nothing {};

template <class T, class A = Compute<T>>
struct StatsReducer {
  using State = Moments<A>;
  static constexpr int kInFlight = 4;
  const T* x;
  A* mean;
  A* var;
  Running<A> running;

  template <int kSize>
  __device__ __forceinline__ Nothing constants(int64_t) const {
    return {};
  }
  template <int kSize>
  __device__ __forceinline__ Vector<T, kSize> load(int64_t offset) const {
    return load_vector<kSize>(x + offset, 0);
  }
  template <int kSize>
  __device__ __forceinline__ void add(State (&s)[kSize], Nothing,
                                      const Vector<T, kSize>& in) const {
    const A count = s[0].count + 1;
    const A share = 1 / count;  // all have equally many terms
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const A value = widen(in.element[k]);
      const A apart = value - s[k].mean;
      s[k].count = count;
      s[k].mean += apart * share;
      s[k].squares += apart * (value - s[k].mean);
    }
  }
  // Applies Chan's formulas to many states at once. This takes one division; merging them one by
  // one takes two for each. The means are measured from one of them, so that the differences are
  // small.
  template <int kMany>
  __device__ __forceinline__ void merge(State& s, const State (&others)[kMany]) const {
    const A near = others[0].count > 0 ? others[0].mean : s.mean;
    A count = s.count;
    A sum = s.count * (s.mean - near);
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      count += others[i].count;
      sum += others[i].count * (others[i].mean - near);
    }
    if (count == 0) return;
    const A mean = near + sum / count;
    const A apart = s.mean - mean;
    A squares = s.squares + s.count * apart * apart;
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      const A distance = others[i].mean - mean;
      squares += others[i].squares + others[i].count * distance * distance;
    }
    s = {count, mean, squares};
  }
  __device__ __forceinline__ void finish(int64_t c, const State& s) const {
    mean[c] = s.mean;
    var[c] = s.count > 0 ? s.squares / s.count : A(0);
    const A kept = 1 - running.momentum;
    if (running.mean) running.mean[c] = kept * running.mean[c] + running.momentum * s.mean;
    if (running.var)
      running.var[c] = kept * running.var[c] + running.momentum * (s.squares / (s.count - 1));
    if (running.batches && c == 0) ++*running.batches;
  }
};

}  // namespace ringgrad::cuda
