// The parts of the ladders' problems (core/kernels/ladder.h).
#pragma once

#include <utility>

#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/ladder.h"
#include "ringgrad/core/random.h"

namespace ringgrad::cuda {

// Normally distributed numbers with mean 0 and deviation 1.
inline Tensor noise(const Shape& shape, DType dtype, Device device,
                    Layout layout = Layout::Strided) {
  const Tensor numbers = empty(shape, {dtype, device});
  normal_(numbers, 0, 1);
  if (layout == Layout::Strided) return numbers;
  const Tensor x = empty(shape, {dtype, device, layout});
  copy_(x, numbers);
  return x;
}

inline LadderProblem make_problem(double operations, std::vector<Tensor> inputs,
                                  std::vector<Tensor> results, std::function<bool(int)> supports,
                                  std::function<void(int, Stream)> run) {
  std::string shapes;
  double bytes = 0;
  for (const auto* tensors : {&inputs, &results})
    for (const Tensor& x : *tensors) {
      shapes += str(shapes.empty()                                  ? ""
                    : tensors == &results && &x == &results.front() ? " → "
                                                                    : ", ",
                    x.shape());
      bytes += static_cast<double>(x.nbytes());
    }
  return {std::move(shapes),  operations,          bytes,         std::move(inputs),
          std::move(results), std::move(supports), std::move(run)};
}

}  // namespace ringgrad::cuda
