// Losses as modules, with PyTorch's names and options: nn::CrossEntropyLoss loss{{.ignore_index =
// 0}}; loss(logits, targets).backward(). Each module calls the function of autograd/ops.h whose
// comment says what it computes and throws. A program that needs no module calls that function.
#pragma once

#include "ringgrad/autograd/ops.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// A loss of an input and its target.
class Loss : public Module {
 public:
  using Module::forward;
  virtual Tensor forward(const Tensor& x, const Tensor& target) = 0;
  Tensor operator()(const Tensor& x, const Tensor& target) {
    return after_hooks(x, forward(x, target));
  }
};

struct LossOptions {
  Reduction reduction = Reduction::Mean;
};

template <Tensor (*f)(const Tensor& x, const Tensor& target, Reduction reduction)>
class ElementLoss : public Loss {
 public:
  using Loss::forward;
  explicit ElementLoss(LossOptions options = {}) : reduction_(options.reduction) {}
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return f(x, target, reduction_);
  }

 private:
  Reduction reduction_;
};
class MSELoss : public ElementLoss<mse_loss> {
  using ElementLoss::ElementLoss;
};
class L1Loss : public ElementLoss<l1_loss> {
  using ElementLoss::ElementLoss;
};
class SoftMarginLoss : public ElementLoss<soft_margin_loss> {
  using ElementLoss::ElementLoss;
};

// Losses with one number besides their reduction. The number comes first in the braces.
template <Tensor (*f)(const Tensor& x, const Tensor& target, Real number, Reduction reduction)>
class NumberLoss : public Loss {
 public:
  using Loss::forward;
  explicit NumberLoss(Real number = 1, LossOptions options = {})
      : number_(number), reduction_(options.reduction) {}
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return f(x, target, number_, reduction_);
  }

 private:
  double number_;
  Reduction reduction_;
};
// HuberLoss(delta), SmoothL1Loss(beta), HingeEmbeddingLoss(margin).
class HuberLoss : public NumberLoss<huber_loss> {
  using NumberLoss::NumberLoss;
};
class SmoothL1Loss : public NumberLoss<smooth_l1_loss> {
  using NumberLoss::NumberLoss;
};
class HingeEmbeddingLoss : public NumberLoss<hinge_embedding_loss> {
  using NumberLoss::NumberLoss;
};

// ---- losses of classes --------------------------------------------------------------------------
// The options are ClassLossOptions; weight is a buffer, which moves with the module.
template <Tensor (*f)(const Tensor& x, const Tensor& target, const ClassLossOptions& options)>
class ClassLoss : public Loss {
 public:
  using Loss::forward;
  explicit ClassLoss(const ClassLossOptions& options = {}) : options_(options) {
    weight = register_buffer("weight", options.weight);
  }
  Tensor forward(const Tensor& x, const Tensor& target) override {
    options_.weight = weight;
    return f(x, target, options_);
  }

  Buffer weight;  // [C] or undefined

 private:
  ClassLossOptions options_;
};
class CrossEntropyLoss : public ClassLoss<cross_entropy> {
  using ClassLoss::ClassLoss;
};
class NLLLoss : public ClassLoss<nll_loss> {
  using ClassLoss::ClassLoss;
};

// ---- losses of probabilities --------------------------------------------------------------------
struct BCELossOptions {
  Tensor weight = {};
  Reduction reduction = Reduction::Mean;
};
class BCELoss : public Loss {
 public:
  using Loss::forward;
  explicit BCELoss(const BCELossOptions& options = {});
  Tensor forward(const Tensor& x, const Tensor& target) override;

  Buffer weight;

 private:
  Reduction reduction_;
};

struct BCEWithLogitsLossOptions {
  Tensor weight = {};
  Tensor pos_weight = {};
  Reduction reduction = Reduction::Mean;
};
class BCEWithLogitsLoss : public Loss {
 public:
  using Loss::forward;
  explicit BCEWithLogitsLoss(const BCEWithLogitsLossOptions& options = {});
  Tensor forward(const Tensor& x, const Tensor& target) override;

  Buffer weight;
  Buffer pos_weight;

 private:
  Reduction reduction_;
};

struct KLDivLossOptions {
  bool log_target = false;
  // PyTorch's reduction="batchmean": the sum, divided by x.size(0).
  bool batchmean = false;
  Reduction reduction = Reduction::Mean;
};
class KLDivLoss : public Loss {
 public:
  using Loss::forward;
  explicit KLDivLoss(KLDivLossOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x, const Tensor& target) override;

 private:
  KLDivLossOptions options_;
};

struct PoissonNLLLossOptions {
  bool log_input = true;
  Reduction reduction = Reduction::Mean;
};
class PoissonNLLLoss : public Loss {
 public:
  using Loss::forward;
  explicit PoissonNLLLoss(PoissonNLLLossOptions options = {}) : options_(options) {}
  Tensor forward(const Tensor& x, const Tensor& target) override {
    return poisson_nll_loss(x, target, options_.log_input, options_.reduction);
  }

 private:
  PoissonNLLLossOptions options_;
};

// ---- losses of three tensors --------------------------------------------------------------------
// MarginRankingLoss(margin) and CosineEmbeddingLoss(margin): loss(a, b, y).
template <Tensor (*f)(const Tensor& a, const Tensor& b, const Tensor& y, Real margin,
                      Reduction reduction)>
class PairLoss : public Module {
 public:
  explicit PairLoss(Real margin = 0, LossOptions options = {})
      : margin_(margin), reduction_(options.reduction) {}
  Tensor operator()(const Tensor& a, const Tensor& b, const Tensor& y) {
    return after_hooks(a, f(a, b, y, margin_, reduction_));
  }

 private:
  double margin_;
  Reduction reduction_;
};
class MarginRankingLoss : public PairLoss<margin_ranking_loss> {
  using PairLoss::PairLoss;
};
class CosineEmbeddingLoss : public PairLoss<cosine_embedding_loss> {
  using PairLoss::PairLoss;
};

class TripletMarginLoss : public Module {
 public:
  explicit TripletMarginLoss(const TripletMarginOptions& options = {}) : options_(options) {}
  Tensor operator()(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
    return after_hooks(anchor, triplet_margin_loss(anchor, positive, negative, options_));
  }

 private:
  TripletMarginOptions options_;
};

struct GaussianNLLLossOptions {
  double eps = 1e-6;
  Reduction reduction = Reduction::Mean;
};
class GaussianNLLLoss : public Module {
 public:
  explicit GaussianNLLLoss(GaussianNLLLossOptions options = {}) : options_(options) {}
  Tensor operator()(const Tensor& x, const Tensor& target, const Tensor& var) {
    return after_hooks(x, gaussian_nll_loss(x, target, var, options_.eps, options_.reduction));
  }

 private:
  GaussianNLLLossOptions options_;
};

}  // namespace ringgrad::nn
