// Code that the batch normalisation kernels share.
#pragma once

#include <cmath>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {

// The bits of batch_norm_positive(). Each pixel of a block has 16, one for each channel.
class Bits {
 public:
  Bits(const Tensor& bits, const Shape& x) : bits_(bits), shape_(x) {}
  bool at(const Shape& i) const { return bits_(word(i), byte(i)) & bit(i); }
  void set(const Shape& i, bool value) const {
    const int64_t old = bits_(word(i), byte(i));
    bits_(word(i), byte(i)) = value ? old | bit(i) : old & ~bit(i);
  }

 private:
  int64_t word(const Shape& i) const {
    const int64_t blocks = (shape_[1] + kChannelBlock - 1) / kChannelBlock;
    return ((i[0] * blocks + i[1] / kChannelBlock) * shape_[2] + i[2]) * shape_[3] + i[3];
  }
  static int64_t byte(const Shape& i) { return i[1] % kChannelBlock / 8; }
  static int64_t bit(const Shape& i) { return 1 << i[1] % 8; }

  Elements<int64_t> bits_;
  Shape shape_;
};

// g, the part of dy that counts. It is dy where y > 0, or all of dy if y is undefined. y is an
// output, or the bits of one.
class Rectified {
 public:
  Rectified(const Tensor& dy, const Tensor& y)
      : dy_(dy), y_(y), bits_(y, dy.shape()), has_bits_(y.defined() && y.dtype() == DType::UInt8) {}
  double operator()(const Shape& i) const {
    const bool counts = !y_ || (has_bits_ ? bits_.at(i) : y_(i) > 0);
    return counts ? double{dy_(i)} : 0;
  }

 private:
  Elements<double> dy_;
  Elements<double> y_;
  Bits bits_;
  bool has_bits_;
};

// Computes xhat of element i.
struct Normalization {
  Elements<double> x;
  Elements<double> mean;
  Elements<double> var;
  double eps;
  Normalization(const Tensor& x, const Tensor& mean, const Tensor& var, double eps)
      : x(x), mean(mean), var(var), eps(eps) {}
  double rstd(int64_t c) const { return 1 / std::sqrt(var(c) + eps); }
  double xhat(const Shape& i) const { return (x(i) - mean(i[1])) * rstd(i[1]); }
};

inline double relu_of(double v) { return v > 0 || std::isnan(v) ? v : 0; }

// Computes dx from g and the sums over `count` elements of a channel. If count is infinite, dx
// depends on g alone.
struct Gradient {
  Normalization of;
  Elements<double> weight;
  Elements<double> sum_dy;
  Elements<double> sum_dy_xhat;
  double count;
  double operator()(const Shape& i, double g) const {
    const int64_t c = i[1];
    const double shared = std::isinf(count) ? 0 : (sum_dy(c) + of.xhat(i) * sum_dy_xhat(c)) / count;
    return weight.value_or(1, c) * of.rstd(c) * (g - shared);
  }
};

}  // namespace ringgrad::reference
