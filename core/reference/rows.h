// Rows x [N, C] of logits, and the class of each row.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {

// max_c x and log Σ e^(x - max) of row n.
struct LogSumExp {
  double largest;
  double log_sum;
  LogSumExp(const Elements<double>& x, int64_t n) : largest(x(n, 0)) {
    const int64_t columns = x.shape()[1];
    for (int64_t c = 1; c < columns; ++c) largest = std::max(largest, double{x(n, c)});
    double sum = 0;
    for (int64_t c = 0; c < columns; ++c) sum += std::exp(x(n, c) - largest);
    log_sum = std::log(sum);
  }
};

// The target of each row, and the weights of the classes, which are 1 if none are given.
struct Classes {
  Elements<int64_t> target;
  Elements<double> weight;
  int64_t count;
  int64_t ignore_index;
  Classes(const Tensor& t, const Tensor& class_weight, int64_t count, int64_t ignore_index)
      : target(t), weight(class_weight), count(count), ignore_index(ignore_index) {}
  bool has(int64_t n) const {
    return target(n) != ignore_index && target(n) >= 0 && target(n) < count;
  }
  // The result of a row without a valid target: 0 if the target is ignored, else NaN.
  double otherwise(int64_t n) const {
    return target(n) == ignore_index ? 0 : std::numeric_limits<double>::quiet_NaN();
  }
  double u(int64_t c) const { return weight.value_or(1, c); }
};

}  // namespace ringgrad::reference
