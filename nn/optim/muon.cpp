#include "ringgrad/nn/optim/muon.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::optim {
namespace {

using MuonGroups = std::vector<ParamGroup<MuonOptions>>;

template <class Spec>
std::vector<Spec> specs(const MuonGroups& groups) {
  std::vector<Spec> all;
  for (const auto& [parameters, o] : groups) {
    CHECK(o.momentum >= 0 && o.momentum < 1 && o.weight_decay >= 0 && o.steps >= 0,
          "Muon: momentum ", o.momentum, ", weight decay ", o.weight_decay, ", steps ", o.steps,
          ", expected a momentum in [0, 1), the rest at least 0");
    for (const auto& [name, parameter] : parameters.named)
      CHECK_AS(ShapeError, !parameter.defined() || parameter.dim() >= 2, "Muon: parameter '", name,
               "' has shape ", parameter.shape(),
               ", expected a matrix or filters; give biases and norms to another optimizer");
    for (const auto& [name, parameter] : parameters.named)
      CHECK_AS(DTypeError, !parameter.defined() || parameter.dtype() == DType::Float32,
               "Muon: parameter '", name, "' is ", parameter.dtype(), ", expected float32");
    all.push_back({parameters, o.lr, {"momentum_buffer"}});
  }
  return all;
}

}  // namespace

Tensor orthogonalized(const Tensor& x, int steps) {
  CHECK_AS(ShapeError, x.defined() && x.dim() == 2, "orthogonalized: shape ", x.shape(),
           ", expected a matrix");
  // With these coefficients a x + b x³ + c x⁵ rises fastest at 0 (Jordan et al. 2024).
  constexpr double kA = 3.4445;
  constexpr double kB = -4.775;
  constexpr double kC = 2.0315;
  constexpr double kTiny = 1e-7;  // for a matrix of zeros
  const bool tall = x.size(0) > x.size(1);
  Tensor y = tall ? contiguous(transpose(x, 0, 1)) : x;
  y = y / (norm(y) + kTiny);
  for (int step = 0; step < steps; ++step) {
    const Tensor square = matmul(y, transpose(y, 0, 1));
    y = kA * y + matmul(kB * square + kC * matmul(square, square), y);
  }
  return tall ? contiguous(transpose(y, 0, 1)) : y;
}

Muon::Muon(ParameterList parameters, MuonOptions options)
    : Muon(MuonGroups{{std::move(parameters), options}}) {}

Muon::Muon(MuonGroups groups) : Optimizer("Muon", specs<GroupSpec>(groups)) {
  for (const auto& [parameters, options] : groups) options_.push_back(options);
}

void Muon::update(int group, const ArenaRange& range, const std::vector<Tensor>& state) {
  const MuonOptions& o = options_[group];
  // A rate of NaN means that nothing may change.
  const Tensor lr = to(guarded_lr(group), DType::Float32);
  const Tensor taken = eq(lr, lr);
  const Tensor& buffer = state[0];
  copy_(buffer, where(taken, o.momentum * buffer + (1 - o.momentum) * range.grads, buffer));
  const Tensor direction =
      o.nesterov ? (1 - o.momentum) * range.grads + o.momentum * buffer : buffer;
  for (size_t i = 0; i < range.parameters.size(); ++i) {
    const Shape& shape = parameter(group, range.parameters[i]).shape();
    const int64_t rows = shape[0];
    const int64_t columns = rows > 0 ? shape.numel() / rows : 0;
    const auto matrix = [&](const Tensor& flat) {
      return flat.as_strided({rows, columns}, {columns, 1},
                             flat.storage_offset() + range.offsets[i]);
    };
    const double scale =
        o.scale_by_shape ? std::sqrt(std::max(1.0, static_cast<double>(rows) / columns)) : 1;
    const Tensor weight = matrix(range.values);
    const Tensor step = orthogonalized(matrix(direction), o.steps) * scale;
    copy_(weight, where(taken, weight * (1 - o.weight_decay * lr) - step * lr, weight));
  }
}

}  // namespace ringgrad::optim
