// SGD and Adam. Each update is one kernel over an arena's range (optimizer.h).
#pragma once

#include <utility>

#include "ringgrad/core/kernels/classifier_kernels.h"
#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

// Stochastic gradient descent with momentum (Polyak 1964; Sutskever et al. 2013 for Nesterov's), as
// in PyTorch: the learning rate multiplies the momentum buffer, not what is added to it. Dampening
// begins with the optimizer's second step, even for a parameter that is reached later (PyTorch:
// with each parameter's second gradient).
struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;  // requires a momentum and no dampening
  bool maximize = false;  // ascends; likewise in all optimizers
};

class SGD : public Optimizer {
 public:
  explicit SGD(ParameterList parameters, SGDOptions options = {});
  explicit SGD(std::vector<ParamGroup<SGDOptions>> groups);

 protected:
  // Calls kernels::sgd_step. State: "momentum" if the momentum is not 0.
  void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  std::vector<kernels::SgdStepOptions> options_;
};

// Adam (Kingma & Ba 2015). With `amsgrad` a step is divided by the root of the largest v so far
// (Reddi, Kale & Kumar 2018).
struct AdamOptions {
  double lr = 1e-3;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled_weight_decay = false;  // AdamW's
};

class Adam : public Optimizer {
 public:
  explicit Adam(ParameterList parameters, AdamOptions options = {});
  explicit Adam(std::vector<ParamGroup<AdamOptions>> groups);

 protected:
  Adam(const char* name, std::vector<ParamGroup<AdamOptions>> groups);
  // Calls kernels::adam_step. State: "exp_avg" and "exp_avg_sq", the paper's m and v, and for
  // amsgrad "max_exp_avg_sq".
  void update(int group, const ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  std::vector<kernels::AdamStepOptions> options_;
};

}  // namespace ringgrad::optim
