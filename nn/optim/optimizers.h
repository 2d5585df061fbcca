// All optimizers but Muon: SGD and Adam, and those that came between them.
#pragma once

#include "ringgrad/core/kernels.h"
#include "ringgrad/nn/optim/sgd_and_adam.h"

namespace ringgrad::optim {

// Adam with the weight decay taken out of the gradient (Loshchilov & Hutter 2019).
struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
};
class AdamW : public Adam {
 public:
  explicit AdamW(ParameterList parameters, AdamWOptions options = {});
  explicit AdamW(std::vector<ParamGroup<AdamWOptions>> groups);
};

// RMSprop (Hinton 2012), as PyTorch defines it: eps is added to the root; with `centered` the
// gradient's mean is taken from its mean square.
struct RMSpropOptions {
  double lr = 0.01;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
};
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(ParameterList parameters, RMSpropOptions options = {});
  explicit RMSprop(std::vector<ParamGroup<RMSpropOptions>> groups);

 protected:
  // State: "square_avg", and "grad_avg", "momentum_buffer" where the options want them.
  void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  std::vector<kernels::RmspropStepOptions> options_;
};

// Adagrad (Duchi, Hazan & Singer 2011): each step is divided by the root of all squares so far.
struct AdagradOptions {
  double lr = 0.01;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
};
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(ParameterList parameters, AdagradOptions options = {});
  explicit Adagrad(std::vector<ParamGroup<AdagradOptions>> groups);

 protected:
  // State: "sum", without the initial value.
  void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  std::vector<kernels::AdagradStepOptions> options_;
};

// Adadelta (Zeiler 2012): the step is as large as the last ones were.
struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
};
class Adadelta : public Optimizer {
 public:
  explicit Adadelta(ParameterList parameters, AdadeltaOptions options = {});
  explicit Adadelta(std::vector<ParamGroup<AdadeltaOptions>> groups);

 protected:
  // State: "square_avg" and "acc_delta".
  void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  std::vector<kernels::AdadeltaStepOptions> options_;
};

}  // namespace ringgrad::optim
