#include "ringgrad/nn/classifier_init.h"

#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/random.h"

namespace ringgrad::nn::init {
namespace {

void symmetric_uniform_(const Tensor& x, double bound) { ringgrad::uniform_(x, -bound, bound); }

double kaiming_std(const Tensor& weight, const KaimingOptions& options) {
  const Fans both = fans(weight);
  const int64_t fan = options.mode == FanMode::FanIn ? both.in : both.out;
  return std::sqrt(
      2 / ((1 + options.negative_slope * options.negative_slope) * static_cast<double>(fan)));
}

}  // namespace

Fans fans(const Tensor& weight) {
  check_defined("init", weight, "the weight");
  CHECK_AS(ShapeError, weight.dim() >= 2, "init: the weight has shape ", weight.shape(),
           ", expected at least two dimensions");
  int64_t field = 1;  // the receptive field
  for (int d = 2; d < weight.dim(); ++d) field *= weight.size(d);
  return {.in = weight.size(1) * field, .out = weight.size(0) * field};
}

void kaiming_normal_(const Tensor& weight, KaimingOptions options) {
  ringgrad::normal_(weight, 0, kaiming_std(weight, options));
}

void kaiming_uniform_(const Tensor& weight, KaimingOptions options) {
  symmetric_uniform_(weight, std::sqrt(3.0) * kaiming_std(weight, options));
}

void layer_default_(const Tensor& weight, const Tensor& bias) {
  const double bound = 1 / std::sqrt(static_cast<double>(fans(weight).in));
  symmetric_uniform_(weight, bound);
  if (bias) symmetric_uniform_(bias, bound);
}

}  // namespace ringgrad::nn::init
