// Questions about a convolution that only devices with several algorithms ask.
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {

ConvProblem conv_problem(ConvPass pass, const Tensor& x, const Tensor& w, const Tensor& y,
                         const Conv2dOptions& options) {
  ConvProblem problem = conv_problem(pass, x, w, options);
  problem.layout = y.layout();
  return problem;
}

bool covers_image(const ConvProblem& p) {
  return p.options.padding == Pair(0) && p.options.groups == 1 && p.x[2] == p.w[2] &&
         p.x[3] == p.w[3];
}

}  // namespace ringgrad
