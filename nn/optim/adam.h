// Adam (Kingma & Ba 2015) and AdamW, which takes the weight decay out of the gradient (Loshchilov & Hutter 2019).
#pragma once

#include "ringgrad/core/kernels.h"
#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
};
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
};

class Adam : public Optimizer {
 public:
  explicit Adam(ParameterList parameters, AdamOptions options = {});
  explicit Adam(std::vector<ParamGroup<AdamOptions>> groups);

 protected:
  Adam(const char* name, std::vector<ParamGroup<AdamOptions>> groups, bool decoupled);
  // kernels::adam_step; state: "exp_avg" and "exp_avg_sq", the paper's m and v.
  void update(int group, const nn::ArenaRange& range, const std::vector<Tensor>& state) override;

 private:
  std::vector<kernels::AdamStepOptions> options_;
};

class AdamW : public Adam {
 public:
  explicit AdamW(ParameterList parameters, AdamWOptions options = {});
  explicit AdamW(std::vector<ParamGroup<AdamWOptions>> groups);
};

}  // namespace ringgrad::optim
