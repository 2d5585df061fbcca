// What batch normalisation makes of one number, given its channel's factors.
#pragma once

#include <cmath>

#include "ringgrad/cuda_kernels/common/device_types.cuh"

namespace ringgrad::cuda {

template <class T, class A = Compute<T>>
struct Normalise {
  const A *mean, *var, *weight, *bias;  // weight and bias: nullptr for 1 and 0
  A eps;

  struct Line {
    A mean, scale, shift;
    __device__ __forceinline__ A operator()(A x) const { return (x - mean) * scale + shift; }
  };
  __device__ __forceinline__ Line line(int64_t c) const {
    return {mean[c], (weight ? weight[c] : A(1)) / std::sqrt(var[c] + eps), bias ? bias[c] : A(0)};
  }
};

template <class T, class A = Compute<T>>
struct BackwardTerms {
  const A *mean, *var, *weight, *sum_dy, *sum_dy_xhat;
  A eps, share;  // share = 1 / count

  // dx = scale (g - mean_g - (x - mean) slope), where slope = 0 without (x - mean), which may be
  // infinite
  struct Line {
    A mean, scale, mean_g, slope;
    __device__ __forceinline__ A operator()(A g, A x) const {
      const A apart = slope == 0 ? A(0) : x - mean;
      return scale * (g - mean_g - apart * slope);
    }
  };
  __device__ __forceinline__ Line line(int64_t c) const {
    const A rstd = 1 / std::sqrt(var[c] + eps), scale = (weight ? weight[c] : A(1)) * rstd;
    if (share == 0) return {mean[c], scale, A(0), A(0)};
    return {mean[c], scale, sum_dy[c] * share, sum_dy_xhat[c] * share * rstd};
  }
};

}  // namespace ringgrad::cuda
