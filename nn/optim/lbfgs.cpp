#include "ringgrad/nn/optim/lbfgs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::optim {
namespace {

double dot(const Tensor& a, const Tensor& b) { return sum(mul(a, b)).item<double>(); }
double largest(const Tensor& x) { return max(abs(x)).item<double>(); }

// Returns the minimum, between two bounds, of the cubic with these values and slopes at two points.
double cubic_minimum(double x1, double f1, double g1, double x2, double f2, double g2, double low,
                     double high) {
  const double d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2);
  const double square = d1 * d1 - g1 * g2;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const double lowest = x1 <= x2 ? x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
                                 : x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2));
  return std::min(std::max(lowest, low), high);
}

}  // namespace

LBFGS::LBFGS(const ParameterList& parameters, LBFGSOptions options) : options_(options) {
  CHECK(options.lr >= 0 && options.max_iter >= 1 && options.max_eval >= 0 &&
            options.history_size >= 1,
        "LBFGS: lr ", options.lr, ", max_iter ", options.max_iter, ", max_eval ", options.max_eval,
        ", history_size ", options.history_size, ", expected at least 0, 1, 0 and 1");
  if (options_.max_eval == 0) options_.max_eval = options.max_iter * 5 / 4;
  for (const auto& [name, tensor] : parameters.named)
    CHECK(tensor.defined() && tensor.is_leaf(), "LBFGS: parameter '", name,
          "' is undefined or was computed from others, expected a leaf");
  frozen_ = parameters.named;
  take_in_unfrozen();
  CHECK(!parameters_.empty(), "LBFGS: there are no parameters that require a gradient");
}

// The measured curvature is forgotten, because it says nothing of the parameters that join.
void LBFGS::take_in_unfrozen() {
  for (auto next = frozen_.begin(); next != frozen_.end();) {
    const auto& [name, tensor] = *next;
    if (!tensor.requires_grad()) {
      ++next;
      continue;
    }
    const Tensor& first = parameters_.empty() ? tensor : parameters_[0];
    CHECK(tensor.dtype() == first.dtype() && tensor.device() == first.device(),
          "LBFGS: parameter '", name, "' is ", tensor.dtype(), " on ", tensor.device(),
          ", the first one ", first.dtype(), " on ", first.device(),
          ", expected one dtype and device");
    parameters_.push_back(tensor);
    next = frozen_.erase(next);
    previous_gradient_ = {};
    history_.clear();
    scale_ = 1;
  }
}

void LBFGS::zero_grad() {
  take_in_unfrozen();
  for (const Tensor& parameter : parameters_) autograd::zero_grad(parameter);
}

Tensor LBFGS::gradient() const {
  std::vector<Tensor> all;
  for (const Tensor& parameter : parameters_) {
    const Tensor grad = parameter.grad();
    all.push_back(reshape(grad ? grad.detach() : zeros_like(parameter), {parameter.numel()}));
  }
  return cat(all);
}

void LBFGS::move(const Tensor& from, double t) {
  const Tensor values = add(from, mul(direction_, t));
  int64_t begin = 0;
  for (const Tensor& parameter : parameters_) {
    const Tensor part = slice(values, 0, begin, begin + parameter.numel());
    copy_(parameter, reshape(part, parameter.shape()));
    begin += parameter.numel();
  }
}

LBFGS::Point LBFGS::at(const std::function<Tensor()>& closure, const Tensor& from, double t) {
  move(from, t);
  const double loss = closure().item<double>();
  const Tensor there = gradient();
  return {t, loss, there, dot(there, direction_)};
}

// Computes the next direction from the gradient and the curvature that the last steps have
// measured.
void LBFGS::turn(const Tensor& gradient) {
  if (!previous_gradient_) {
    direction_ = neg(gradient);
    return;
  }
  const Tensor y = sub(gradient, previous_gradient_);
  const Tensor s = mul(direction_, step_size_);
  const double ys = dot(y, s);
  if (ys > 1e-10) {
    if (static_cast<int>(history_.size()) == options_.history_size) history_.pop_front();
    history_.push_back({y, s, 1 / ys});
    scale_ = ys / dot(y, y);
  }
  Tensor q = neg(gradient);
  std::vector<double> alpha(history_.size());
  for (size_t i = history_.size(); i-- > 0;) {
    alpha[i] = dot(history_[i].s, q) * history_[i].rho;
    q = add(q, mul(history_[i].y, -alpha[i]));
  }
  direction_ = mul(q, scale_);
  for (size_t i = 0; i < history_.size(); ++i) {
    const double beta = dot(history_[i].y, direction_) * history_[i].rho;
    direction_ = add(direction_, mul(history_[i].s, alpha[i] - beta));
  }
}

// Finds a point at which the loss has fallen by at least c1 of what its initial slope predicts, and
// the slope's magnitude to c2 of the initial one. It first finds a bracket that contains such a
// point, and then shrinks it. Evaluates at most `most` + 1 points.
LBFGS::Point LBFGS::strong_wolfe(const std::function<Point(double t)>& at, const Point& start,
                                 double t, int most) const {
  constexpr double c1 = 1e-4;
  constexpr double c2 = 0.9;
  constexpr double smallest_bracket = 1e-9;  // PyTorch's, whatever tolerance_change is
  const double reach = largest(direction_);
  const auto too_high = [&](const Point& p) {
    return p.loss > start.loss + c1 * p.t * start.slope;
  };
  const auto flat = [&](const Point& p) { return std::abs(p.slope) <= -c2 * start.slope; };
  Point before = start;
  Point now = at(t);
  int looks = 0;
  for (; looks < most; ++looks) {
    if (too_high(now) || (looks > 1 && now.loss >= before.loss)) break;
    if (flat(now)) return now;
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before.t, before.loss, before.slope, now.t, now.loss,
                                      now.slope, now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = now;
    now = at(next);
  }
  if (looks == most) before = start;
  Point low = before;
  Point high = now;
  if (high.loss < low.loss) std::swap(low, high);
  bool stuck = false;
  for (; looks < most; ++looks) {
    const double left = std::min(low.t, high.t);
    const double right = std::max(low.t, high.t);
    if ((right - left) * reach < smallest_bracket) break;
    // The points are passed in the order of PyTorch's bracket, which gives the same curve.
    double next =
        cubic_minimum(low.t, low.loss, low.slope, high.t, high.loss, high.slope, left, right);
    const double margin = 0.1 * (right - left);
    const bool near_end = std::min(right - next, next - left) < margin;
    if (near_end && (stuck || next >= right || next <= left)) {
      next = right - next < next - left ? right - margin : left + margin;
      stuck = false;
    } else {
      stuck = near_end;
    }
    now = at(next);
    if (too_high(now) || now.loss >= low.loss) {
      high = now;
      if (high.loss < low.loss) std::swap(low, high);
      continue;
    }
    const bool done = flat(now);
    if (!done && now.slope * (high.t - low.t) >= 0) high = low;
    low = now;
    if (done) break;
  }
  return low;
}

double LBFGS::step(const std::function<Tensor()>& closure) {
  take_in_unfrozen();
  const double first_loss = closure().item<double>();
  int evaluations = 1;
  Point here{0, first_loss, gradient(), 0};
  if (largest(here.gradient) <= options_.tolerance_grad) return first_loss;
  for (int i = 1;; ++i) {
    const bool is_first = !previous_gradient_;
    turn(here.gradient);
    previous_gradient_ = here.gradient;
    const double loss_before = here.loss;
    step_size_ = options_.lr;
    if (is_first) step_size_ *= std::min(1.0, 1 / sum(abs(here.gradient)).item<double>());
    here.slope = dot(here.gradient, direction_);
    here.t = 0;
    if (here.slope > -options_.tolerance_change) break;

    std::vector<Tensor> values;
    for (const Tensor& parameter : parameters_)
      values.push_back(reshape(parameter.detach(), {parameter.numel()}));
    const Tensor from = cat(values);
    const auto look = [&](double t) {
      ++evaluations;
      return at(closure, from, t);
    };
    if (options_.line_search == LineSearch::StrongWolfe) {
      here = strong_wolfe(look, here, step_size_, options_.max_eval - evaluations);
      step_size_ = here.t;
      move(from, step_size_);
    } else if (i < options_.max_iter) {
      here = look(step_size_);
    } else {
      move(from, step_size_);
    }
    if (i == options_.max_iter || evaluations >= options_.max_eval ||
        largest(here.gradient) <= options_.tolerance_grad ||
        largest(direction_) * step_size_ <= options_.tolerance_change ||
        std::abs(here.loss - loss_before) < options_.tolerance_change)
      break;
  }
  return first_loss;
}

}  // namespace ringgrad::optim
