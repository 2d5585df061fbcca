#include "ringgrad/nn/sequential.h"

namespace ringgrad::nn {

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& module : *this) y = (*module)(y);
  return y;
}

}  // namespace ringgrad::nn
