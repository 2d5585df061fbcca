#include "ringgrad/nn/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::optim {
namespace {

// Returns half a cosine from a at 0 to b at 1.
double cosine_between(double a, double b, double fraction) {
  return b + (a - b) * (1 + std::cos(std::numbers::pi * fraction)) / 2;
}

}  // namespace

double StepLR::operator()(double base_lr, int64_t step) const {
  CHECK(step_size > 0, "StepLR: step_size is ", step_size, ", expected at least 1");
  return base_lr * std::pow(gamma, static_cast<double>(step / step_size));
}

double MultiStepLR::operator()(double base_lr, int64_t step) const {
  CHECK(std::is_sorted(milestones.begin(), milestones.end()),
        "MultiStepLR: the milestones are not ascending");
  const auto reached =
      std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
  return base_lr * std::pow(gamma, static_cast<double>(reached));
}

double CosineAnnealingLR::operator()(double base_lr, int64_t step) const {
  CHECK(t_max > 0, "CosineAnnealingLR: t_max is ", t_max, ", expected at least 1");
  return cosine_between(base_lr, eta_min, static_cast<double>(step) / static_cast<double>(t_max));
}

double ExponentialLR::operator()(double base_lr, int64_t step) const {
  return base_lr * std::pow(gamma, static_cast<double>(step));
}

double ConstantLR::operator()(double base_lr, int64_t step) const {
  CHECK(factor >= 0 && factor <= 1, "ConstantLR: the factor is ", factor,
        ", expected a number in [0, 1]");
  return step < total_iters ? base_lr * factor : base_lr;
}

double PolynomialLR::operator()(double base_lr, int64_t step) const {
  CHECK(total_iters > 0, "PolynomialLR: total_iters is ", total_iters, ", expected at least 1");
  const double left =
      1 - static_cast<double>(std::min(step, total_iters)) / static_cast<double>(total_iters);
  return base_lr * std::pow(left, power);
}

double CosineAnnealingWarmRestarts::operator()(double base_lr, int64_t step) const {
  CHECK(t_0 > 0 && t_mult > 0, "CosineAnnealingWarmRestarts: t_0 is ", t_0, ", t_mult ", t_mult,
        ", expected at least 1");
  int64_t length = t_0;
  if (t_mult == 1) step %= t_0;
  while (step >= length) {
    step -= length;
    if (__builtin_mul_overflow(length, t_mult, &length)) length = INT64_MAX;
  }
  return cosine_between(base_lr, eta_min, static_cast<double>(step) / static_cast<double>(length));
}

double CyclicLR::operator()(double base_lr, int64_t step) const {
  const int64_t down = step_size_down == 0 ? step_size_up : step_size_down;
  int64_t length = 0;
  CHECK(step_size_up > 0 && down > 0 && !__builtin_add_overflow(step_size_up, down, &length),
        "CyclicLR: ", step_size_up, " steps up and ", down,
        " down, expected at least 1, and at most ", INT64_MAX, " together");
  const int64_t cycle = step / length;
  const int64_t at = step % length;
  const double height = at <= step_size_up
                            ? static_cast<double>(at) / static_cast<double>(step_size_up)
                            : static_cast<double>(length - at) / static_cast<double>(down);
  const double scale = mode == CyclicMode::Triangular2 ? std::pow(0.5, static_cast<double>(cycle))
                       : mode == CyclicMode::ExpRange  ? std::pow(gamma, static_cast<double>(step))
                                                       : 1;
  return base_lr + (max_lr - base_lr) * height * scale;
}

double LambdaLR::operator()(double base_lr, int64_t step) const {
  CHECK(factor != nullptr, "LambdaLR: there is no factor, expected a function of the step");
  return base_lr * factor(step);
}

double MultiplicativeLR::operator()(double base_lr, int64_t step) const {
  CHECK(factor != nullptr, "MultiplicativeLR: there is no factor, expected a function of the step");
  for (int64_t i = 1; i <= step; ++i) base_lr *= factor(i);
  return base_lr;
}

double LinearLR::operator()(double base_lr, int64_t step) const {
  CHECK(total_iters > 0, "LinearLR: total_iters is ", total_iters, ", expected at least 1");
  const double fraction =
      static_cast<double>(std::min(step, total_iters)) / static_cast<double>(total_iters);
  return base_lr * (start_factor + (end_factor - start_factor) * fraction);
}

double OneCycleLR::operator()(double, int64_t step) const {
  CHECK(total_steps > 1 && pct_start >= 0 && pct_start <= 1, "OneCycleLR: total_steps is ",
        total_steps, ", pct_start ", pct_start, ", expected at least 2 and a value in [0, 1]");
  const double first = max_lr / div_factor;
  const double last = first / final_div_factor;
  // The schedule has total_steps points. The peak is the point before pct_start of them, and the
  // end is the last one.
  const double peak = pct_start * static_cast<double>(total_steps) - 1;
  const double end = static_cast<double>(total_steps - 1);
  const double t = std::min(static_cast<double>(step), end);
  // A peak at the first point needs no rise, and what is left of the product's rounding is none.
  return t <= peak && peak > 1e-9 ? cosine_between(first, max_lr, t / peak)
                                  : cosine_between(max_lr, last, (t - peak) / (end - peak));
}

double SequentialLR::operator()(double base_lr, int64_t step) const {
  CHECK(!schedules.empty() && milestones.size() + 1 == schedules.size(),
        "SequentialLR: ", schedules.size(), " schedules and ", milestones.size(),
        " milestones, expected one milestone less than schedules");
  CHECK(std::is_sorted(milestones.begin(), milestones.end()),
        "SequentialLR: the milestones are not ascending");
  const auto current =
      std::upper_bound(milestones.begin(), milestones.end(), step) - milestones.begin();
  CHECK(schedules[current] != nullptr, "SequentialLR: schedule ", current,
        " is empty, expected a function of the base rate and the step");
  return schedules[current](base_lr, current == 0 ? step : step - milestones[current - 1]);
}

LRScheduler::LRScheduler(Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  CHECK(schedule_ != nullptr,
        "LRScheduler: the schedule is empty, expected a function of the base rate and the step");
  for (int group = 0; group < optimizer.num_groups(); ++group)
    base_lrs_.push_back(optimizer.lr(group));
  set_last_step(0);
}

void LRScheduler::set_last_step(Int64 step) {
  CHECK(step >= 0, "LRScheduler: step ", step, ", expected at least 0");
  std::vector<double> lrs;  // all, before one is set: a schedule may throw
  for (const double base_lr : base_lrs_) lrs.push_back(schedule_(base_lr, step));
  for (size_t group = 0; group < lrs.size(); ++group)
    optimizer_.set_lr(static_cast<int>(group), lrs[group]);
  last_step_ = step;
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : optimizer_(optimizer), options_(options), best_(options.maximize ? -INFINITY : INFINITY) {
  CHECK(options.factor > 0 && options.factor < 1, "ReduceLROnPlateau: the factor is ",
        options.factor, ", expected a number between 0 and 1");
}

void ReduceLROnPlateau::step(Real measure) {
  const double sign = options_.maximize ? 1 : -1;  // the sign of an improvement
  const double to_beat = options_.relative ? best_ * (1 + sign * options_.threshold)
                                           : best_ + sign * options_.threshold;
  if (options_.maximize ? measure > to_beat : measure < to_beat) {
    best_ = measure;
    bad_steps_ = 0;
  } else {
    ++bad_steps_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_steps_ = 0;
  }
  if (bad_steps_ <= options_.patience) return;
  for (int group = 0; group < optimizer_.num_groups(); ++group) {
    const double lr = optimizer_.lr(group);
    const double reduced = std::max(lr * options_.factor, options_.min_lr);
    if (lr - reduced > options_.eps) optimizer_.set_lr(group, reduced);
  }
  cooldown_left_ = options_.cooldown;
  bad_steps_ = 0;
}

Tensor ReduceLROnPlateau::state() const {
  return tensor<double>(
      {best_, static_cast<double>(bad_steps_), static_cast<double>(cooldown_left_)});
}

void ReduceLROnPlateau::set_state(const Tensor& state) {
  CHECK_AS(ShapeError, state && state.shape() == Shape{3},
           "ReduceLROnPlateau: the state is not that of another one, ",
           "expected what state() gave");
  const std::vector<double> values = to_vector<double>(state);
  for (const int i : {1, 2})
    CHECK(values[i] >= 0 && values[i] < 0x1p53, "ReduceLROnPlateau: the state has ", values[i],
          " steps, expected a number of them, as in what state() gave");
  best_ = values[0];
  bad_steps_ = static_cast<int64_t>(values[1]);
  cooldown_left_ = static_cast<int64_t>(values[2]);
}

}  // namespace ringgrad::optim
