// Batch normalisation of one number, given its channel's factors.
#pragma once

#include <cmath>

#include "ringgrad/cuda_kernels/common/device_types.cuh"

namespace ringgrad::cuda {

template <class T, class A = Compute<T>>
struct Normalise {
  // weight and bias: nullptr stands for 1 and 0
  const A* mean;
  const A* var;
  const A* weight;
  const A* bias;
  A eps;

  struct Line {
    A mean;
    A scale;
    A shift;
    __device__ __forceinline__ A operator()(A x) const { return (x - mean) * scale + shift; }
  };
  __device__ __forceinline__ Line line(int64_t c) const {
    return {mean[c], (weight ? weight[c] : A(1)) / std::sqrt(var[c] + eps), bias ? bias[c] : A(0)};
  }
};

// What backward sums for each channel; xhat is at first not divided by the deviation.
template <class A>
struct Sums {
  A dy;
  A dy_xhat;
};

template <class T, class A = Compute<T>>
struct BackwardTerms {
  const A* mean;
  const A* var;
  const A* weight;
  const A* sum_dy;
  const A* sum_dy_xhat;
  // share = 1 / count
  A eps;
  A share;

  // dx = scale (g - mean_g - (x - mean) slope); if slope = 0 the product is left out, because (x -
  // mean) may be infinite
  struct Line {
    A mean;
    A scale;
    A mean_g;
    A slope;
    __device__ __forceinline__ A operator()(A g, A x) const {
      const A apart = slope == 0 ? A(0) : x - mean;
      return scale * (g - mean_g - apart * slope);
    }
  };
  __device__ __forceinline__ Line line(int64_t c) const {
    const A rstd = 1 / std::sqrt(var[c] + eps);
    const A scale = (weight ? weight[c] : A(1)) * rstd;
    if (share == 0) return {mean[c], scale, A(0), A(0)};
    return {mean[c], scale, sum_dy[c] * share, sum_dy_xhat[c] * share * rstd};
  }
};

}  // namespace ringgrad::cuda
