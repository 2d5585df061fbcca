// L-BFGS: steps along directions that the differences of the last gradients correct (Liu & Nocedal
// 1989), for smooth functions without noise. It follows torch.optim.LBFGS.
//
//   optim::LBFGS optimizer(net.named_parameters(), {.line_search = LineSearch::StrongWolfe});
//   optimizer.step([&] {
//     optimizer.zero_grad();
//     Tensor loss = mse_loss(net(x), y);
//     loss.backward();
//     return loss;
//   });
#pragma once

#include <deque>
#include <functional>

#include "ringgrad/autograd/arena.h"
#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

// None takes the whole step. StrongWolfe searches for a step after which the loss and its slope
// have fallen enough (Nocedal & Wright 2006, algorithms 3.5 and 3.6).
enum class LineSearch : uint8_t { None, StrongWolfe };

struct LBFGSOptions {
  double lr = 1;
  int max_iter = 20;  // per step()
  int max_eval = 0;   // calls of the closure per step(), or one more; 0: 5/4 max_iter
  double tolerance_grad = 1e-7;
  double tolerance_change = 1e-9;
  int history_size = 100;
  LineSearch line_search = LineSearch::None;
};

// Not an Optimizer, because a step computes the loss several times. Waits for the device in every
// iteration.
class LBFGS {
 public:
  // Throws Error if a parameter is undefined, if there are none, or if they have several devices or
  // dtypes.
  explicit LBFGS(const ParameterList& parameters, LBFGSOptions options = {});

  void zero_grad();
  // The closure computes the loss and leaves its gradients in the parameters. Returns the loss
  // before the step.
  double step(const std::function<Tensor()>& closure);

 private:
  // A point along the direction: the loss, the gradient, and the gradient's component along the
  // direction.
  struct Point {
    double t;
    double loss;
    Tensor gradient;
    double slope;
  };
  struct Curvature {
    Tensor y;
    Tensor s;    // difference of the parameters; y: of the gradient
    double rho;  // 1 / (y · s)
  };
  void take_in_unfrozen();
  Tensor gradient() const;  // [n], for all parameters
  // Sets the parameters to `from` + t direction.
  void move(const Tensor& from, double t);
  Point at(const std::function<Tensor()>& closure, const Tensor& from, double t);
  void turn(const Tensor& gradient);
  Point strong_wolfe(const std::function<Point(double t)>& at, const Point& start, double t,
                     int most) const;

  std::vector<Tensor> parameters_;
  nn::NamedTensors frozen_;
  LBFGSOptions options_;
  Tensor direction_;
  Tensor previous_gradient_;
  double step_size_ = 0;
  std::deque<Curvature> history_;
  double scale_ = 1;
};

}  // namespace ringgrad::optim
