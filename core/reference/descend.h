// Code that the steps of all optimizers share.
#pragma once

#include <cmath>

#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {

// Returns the only element of a tensor.
inline double number_in(const Tensor& x) { return Elements<double>(flat(x))(0); }

// param -= rate direction(i, grad + weight_decay param) for every element i. If the rate is NaN,
// nothing changes.
template <class Direction>
void descend(const Tensor& param, const Tensor& grad, double rate, double weight_decay,
             const Direction& direction) {
  if (std::isnan(rate)) return;
  const Results<double> p(flat(param));
  const Elements<double> g(flat(grad));
  for (int64_t i = 0; i < param.numel(); ++i)
    p(i) = p(i) - rate * direction(i, g(i) + weight_decay * p(i));
}

}  // namespace ringgrad::reference
