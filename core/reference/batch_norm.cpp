// Reference: batch normalisation of x [N, C, …], alone and with the max pooling behind it.
#include <cmath>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// The bits of batch_norm_positive(): 16 for the channels of a block's pixel.
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

// g, the part of dy that counts: all of it without y, which is an output or the bits of one, else
// where that is > 0.
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

// xhat of element i, and the output before it is rectified.
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
double relu_of(double v) { return v > 0 || std::isnan(v) ? v : 0; }

void batch_norm_stats(Stream, const Tensor& mean_out, const Tensor& var_out, const Tensor& x_in) {
  const Elements<double> x(x_in);
  const Results<double> mean(mean_out);
  const Results<double> var(var_out);
  const int64_t channels = x.shape()[1];
  const double count = static_cast<double>(x_in.numel()) / static_cast<double>(channels);
  Sums sums({channels});
  Sums squares({channels});
  for_each_index(x.shape(), [&](const Shape& i) { sums(i[1]) += x(i); });
  for_each_index(x.shape(), [&](const Shape& i) {
    const double deviation = x(i) - sums(i[1]) / count;
    squares(i[1]) += deviation * deviation;
  });
  for (int64_t c = 0; c < channels; ++c) {
    mean(c) = sums(c) / count;
    var(c) = squares(c) / count;
  }
}

void batch_norm_apply(Stream, const Tensor& y_out, const Tensor& positive, const Tensor& x,
                      const Tensor& mean, const Tensor& var, const Tensor& weight_in,
                      const Tensor& bias_in, const Tensor& residual_in, double eps, bool relu) {
  const Normalization of(x, mean, var, eps);
  const Elements<double> weight(weight_in);
  const Elements<double> bias(bias_in);
  const Elements<double> residual(residual_in);
  const Results<double> y(y_out);
  const Bits bits(positive, x.shape());
  for_each_index(y.shape(), [&](const Shape& i) {
    const double value =
        weight.value_or(1, i[1]) * of.xhat(i) + bias.value_or(0, i[1]) + residual.value_or(0, i);
    y(i) = relu ? relu_of(value) : value;
    if (positive.defined()) bits.set(i, value > 0);
  });
}

void batch_norm_backward_reduce(Stream, const Tensor& sum_dy_out, const Tensor& sum_dy_xhat_out,
                                const Tensor& dy, const Tensor& x, const Tensor& y,
                                const Tensor& mean, const Tensor& var, double eps) {
  const Normalization of(x, mean, var, eps);
  const Rectified g(dy, y);
  const Results<double> sum_dy(sum_dy_out);
  const Results<double> sum_dy_xhat(sum_dy_xhat_out);
  Sums sums(sum_dy.shape());
  Sums products(sum_dy.shape());
  for_each_index(dy.shape(), [&](const Shape& i) {
    sums(i[1]) += g(i);
    products(i[1]) += g(i) * of.xhat(i);
  });
  for (int64_t c = 0; c < x.size(1); ++c) {
    sum_dy(c) = sums(c);
    sum_dy_xhat(c) = products(c);
  }
}

// dx from g, with sums over `count` elements of a channel; from g alone if those are infinitely
// many.
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

void batch_norm_backward_apply(Stream, const Tensor& dx_out, const Tensor& dresidual_out,
                               const Tensor& dy, const Tensor& x, const Tensor& y,
                               const Tensor& mean, const Tensor& var, const Tensor& weight,
                               const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                               double count) {
  const Gradient gradient = {Normalization(x, mean, var, eps), Elements<double>(weight),
                             Elements<double>(sum_dy), Elements<double>(sum_dy_xhat), count};
  const Rectified rectified(dy, y);
  const Results<double> dx(dx_out);
  const Results<double> dresidual(dresidual_out);
  for_each_index(x.shape(), [&](const Shape& i) {
    const double g = rectified(i);
    dx(i) = gradient(i, g);
    if (dresidual) dresidual(i) = g;
  });
}

void batch_norm_max_pool(Stream, const Tensor& y_out, const Tensor& winners_out,
                         const Tensor& index_out, const Tensor& x_in, const Tensor& mean,
                         const Tensor& var, const Tensor& weight_in, const Tensor& bias_in,
                         double eps, bool relu, int64_t window) {
  const Normalization of(x_in, mean, var, eps);
  const Elements<double> weight(weight_in);
  const Elements<double> bias(bias_in);
  const Results<double> y(y_out);
  const Results<double> winners(winners_out);
  const Results<int64_t> index(index_out);
  for_each_index(y.shape(), [&](const Shape& i) {
    double best = 0;
    Shape place;
    for_each_index({window, window}, [&](const Shape& tap) {
      const Shape at = {i[0], i[1], i[2] * window + tap[0], i[3] * window + tap[1]};
      const double value = weight.value_or(1, i[1]) * of.xhat(at) + bias.value_or(0, i[1]);
      if (place.dim() > 0 && !(value > best || (std::isnan(value) && !std::isnan(best)))) return;
      best = value;
      place = at;
    });
    y(i) = relu ? relu_of(best) : best;
    winners(i) = of.x(place);
    index(i) = place[2] * x_in.size(3) + place[3];
  });
}

void batch_norm_max_pool_backward(Stream, const Tensor& dx_out, const Tensor& dy_in,
                                  const Tensor& index_in, const Tensor& x, const Tensor& y,
                                  const Tensor& mean, const Tensor& var, const Tensor& weight,
                                  const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                                  double count, int64_t) {
  const Gradient gradient = {Normalization(x, mean, var, eps), Elements<double>(weight),
                             Elements<double>(sum_dy), Elements<double>(sum_dy_xhat), count};
  const Rectified rectified(dy_in, y);
  const Elements<int64_t> index(index_in);
  const Results<double> dx(dx_out);
  Sums g(x.shape());
  for_each_index(dy_in.shape(), [&](const Shape& i) {
    const int64_t place = index(i);
    g(i[0], i[1], place / x.size(3), place % x.size(3)) = rectified(i);
  });
  for_each_index(x.shape(), [&](const Shape& i) { dx(i) = gradient(i, g(i)); });
}

REFERENCE(batch_norm_stats);
REFERENCE(batch_norm_apply);
REGISTER_KERNEL(batch_norm, CPU, Reference, batch_norm_in_steps);
REFERENCE(batch_norm_backward_reduce);
REFERENCE(batch_norm_backward_apply);
REGISTER_KERNEL(batch_norm_backward, CPU, Reference, batch_norm_backward_in_steps);
REFERENCE(batch_norm_max_pool);
REFERENCE(batch_norm_max_pool_backward);

}  // namespace
}  // namespace ringgrad::reference
