// Learning rate schedules, pure functions of the number of steps, with PyTorch's names and values:
//
//   optim::LRScheduler scheduler(optimizer, optim::SequentialLR{
//       .schedules = {optim::LinearLR{.start_factor = 0.1, .total_iters = 5},
//                     optim::CosineAnnealingLR{.t_max = 95}},
//       .milestones = {5}});
//   for (…) { …; optimizer.step(); scheduler.step(); }
//
// To resume, only the step is needed: scheduler.set_last_step(n). Construct the scheduler before
// optimizer.load_state_dict(), because the rates that it loads are not the initial ones.
#pragma once

#include <functional>
#include <vector>

#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

// Returns the rate after `step` steps of the scheduler (0: initially) for a group whose initial
// rate is base_lr.
using Schedule = std::function<double(double base_lr, int64_t step)>;

// base_lr gamma^⌊step / step_size⌋.
struct StepLR {
  int64_t step_size = 30;
  double gamma = 0.1;
  double operator()(double base_lr, int64_t step) const;
};

// base_lr gamma^(number of milestones reached).
struct MultiStepLR {
  std::vector<int64_t> milestones;  // ascending
  double gamma = 0.1;
  double operator()(double base_lr, int64_t step) const;
};

// eta_min + (base_lr - eta_min) (1 + cos(π step / t_max)) / 2: half a wave down to eta_min, and up
// again after t_max (Loshchilov & Hutter 2017, without restarts).
struct CosineAnnealingLR {
  int64_t t_max = 100;
  double eta_min = 0;
  double operator()(double base_lr, int64_t step) const;
};

// base_lr gamma^step.
struct ExponentialLR {
  double gamma = 0.1;
  double operator()(double base_lr, int64_t step) const;
};

// base_lr times `factor` in the first total_iters steps, then base_lr.
struct ConstantLR {
  double factor = 1.0 / 3;
  int64_t total_iters = 5;
  double operator()(double base_lr, int64_t step) const;
};

// base_lr (1 - step / total_iters)^power, and 0 from there on.
struct PolynomialLR {
  int64_t total_iters = 5;
  double power = 1;
  double operator()(double base_lr, int64_t step) const;
};

// Half a cosine from base_lr to eta_min in t_0 steps. It then restarts, each time t_mult times as
// long (Loshchilov & Hutter 2017).
struct CosineAnnealingWarmRestarts {
  int64_t t_0 = 10;
  int64_t t_mult = 1;
  double eta_min = 0;
  double operator()(double base_lr, int64_t step) const;
};

// Rises from base_lr, the lower end, to max_lr in step_size_up steps and falls again in
// step_size_down (0: as many), repeatedly (Smith 2017). With Triangular2 each cycle has half the
// height of the one before. With ExpRange the height is multiplied by gamma^step. The momentum does
// not change (PyTorch: cycle_momentum=False).
enum class CyclicMode : uint8_t { Triangular, Triangular2, ExpRange };
struct CyclicLR {
  double max_lr = 0.1;
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;
  CyclicMode mode = CyclicMode::Triangular;
  double gamma = 1;
  double operator()(double base_lr, int64_t step) const;
};

// base_lr times the product of factor(1) … factor(step).
struct MultiplicativeLR {
  std::function<double(int64_t step)> factor;
  double operator()(double base_lr, int64_t step) const;
};

// base_lr times the function's result.
struct LambdaLR {
  std::function<double(int64_t step)> factor;
  double operator()(double base_lr, int64_t step) const;
};

// base_lr times a factor that goes from start_factor to end_factor in total_iters steps and then
// stays: a warm-up.
struct LinearLR {
  double start_factor = 1.0 / 3;
  double end_factor = 1;
  int64_t total_iters = 5;
  double operator()(double base_lr, int64_t step) const;
};

// Rises from max_lr / div_factor to max_lr in the first pct_start of total_steps, then falls to the
// first rate divided by final_div_factor and stays there. Both parts are half a cosine (Smith &
// Topin 2019). base_lr is ignored, and the momentum does not change (PyTorch:
// cycle_momentum=False).
struct OneCycleLR {
  double max_lr = 0.1;
  int64_t total_steps = 100;
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
  double operator()(double base_lr, int64_t step) const;
};

// Schedule i applies from milestones[i - 1] on and counts from its own beginning. There is one
// milestone less than schedules.
struct SequentialLR {
  std::vector<Schedule> schedules;
  std::vector<int64_t> milestones;  // ascending
  double operator()(double base_lr, int64_t step) const;
};

// Sets the rates of an optimizer's groups. Their rates at construction are the base rates. Call
// step() after each optimizer step or after each epoch, whichever the schedule counts. Keeps a
// reference to the optimizer.
class LRScheduler {
 public:
  LRScheduler(Optimizer& optimizer, Schedule schedule);
  void step() { set_last_step(last_step_ + 1); }
  int64_t last_step() const { return last_step_; }
  void set_last_step(Int64 step);

 private:
  Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> base_lrs_;
  int64_t last_step_ = 0;
};

// Multiplies the rates by `factor` if a measure has not improved for more than `patience` steps. It
// is not a Schedule, because it does not depend on the number of steps alone. An improvement is
// less than best (1 - threshold), or with `maximize` more than best (1 + threshold). If not
// `relative`, it is less than best - threshold or more than best + threshold. For a negative best
// the relative limits are worse than the best itself, as in PyTorch.
struct ReduceLROnPlateauOptions {
  bool maximize = false;  // PyTorch's mode="max": an accuracy
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  bool relative = true;  // PyTorch's threshold_mode="rel"
  int64_t cooldown = 0;  // steps after a reduction that do not count
  // a rate is not changed by eps or less
  double min_lr = 0;
  double eps = 1e-8;
};
class ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});
  void step(Real measure);
  // The state for resuming, float64 [3]: the best measure, the number of steps without improvement,
  // and the steps left of the cooldown.
  Tensor state() const;
  void set_state(const Tensor& state);

 private:
  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  double best_;
  int64_t bad_steps_ = 0;
  int64_t cooldown_left_ = 0;
};

}  // namespace ringgrad::optim
