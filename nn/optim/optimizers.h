// All optimizers except Muon and L-BFGS: SGD and Adam (sgd_and_adam.h), AdamW, RMSprop, Adagrad and
// Adadelta.
#pragma once

#include "ringgrad/core/kernels.h"
#include "ringgrad/nn/optim/sgd_and_adam.h"

namespace ringgrad::optim {

// Adam with weight decay separate from the gradient (Loshchilov & Hutter 2019).
struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  bool amsgrad = false;
  bool maximize = false;
};
class AdamW : public Adam {
 public:
  explicit AdamW(ParameterList parameters, AdamWOptions options = {});
  explicit AdamW(std::vector<ParamGroup<AdamWOptions>> groups);
};

// RMSprop (Hinton 2012), as in PyTorch: eps is added to the root. With `centered` the square of the
// gradient's mean is subtracted from its mean square.
struct RMSpropOptions {
  double lr = 0.01;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
};
class RMSprop : public Optimizer {
 public:
  explicit RMSprop(ParameterList parameters, RMSpropOptions options = {});
  explicit RMSprop(std::vector<ParamGroup<RMSpropOptions>> groups);

 protected:
  // State: "square_avg", and "grad_avg" and "momentum_buffer" if the options need them.
  void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  std::vector<kernels::RmspropStepOptions> options_;
};

// Adagrad (Duchi, Hazan & Singer 2011): divides each step by the root of the sum of all squares so
// far.
struct AdagradOptions {
  double lr = 0.01;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
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

// Adadelta (Zeiler 2012): scales each step by the size of the last steps.
struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
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
