// Losses and distances composed of other operations.
#include <cmath>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/class_loss.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// Throws unless x can be repeated to the input's shape. If the input were repeated, too, a loss of
// [N] and [N, 1] would compare each number with all targets.
void check_repeats(const char* name, const Tensor& input, const Tensor& x) {
  check_defined(name, x);
  CHECK_AS(ShapeError, broadcast_shapes(name, input.shape(), x.shape()) == input.shape(), name,
           ": the input has shape ", input.shape(), ", a target or weight ", x.shape(),
           ", expected one that is repeated to the input's");
}

// Returns x in the dtype in which losses compute: float32 for 16 bits. Where there is an input, x
// is its target or weight.
Tensor for_loss(const char* name, const Tensor& x, const Tensor& input = {}) {
  check_floating(name, x);
  if (input) check_repeats(name, input, x);
  return to(autocast_loss(x), accumulator_dtype(x.dtype()));
}

// Reduces the losses, in x's dtype.
Tensor reduced(const Tensor& losses, Reduction reduction, const Tensor& x) {
  const Tensor y = reduction == Reduction::Mean  ? mean(losses)
                   : reduction == Reduction::Sum ? sum(losses)
                                                 : losses;
  return to(y, autocast_loss(x).dtype());
}

}  // namespace

Tensor normalize(const Tensor& x, Real p, Int dim, Real eps) {
  check_floating("normalize", x);
  const Tensor wide = to(x, accumulator_dtype(x.dtype()));  // 16 bits would hold eps as 0
  return to(div(wide, clamp_min(norm(wide, p, int{dim}, true), double{eps})), x.dtype());
}

Tensor cosine_similarity(const Tensor& a, const Tensor& b, Int dim, Real eps) {
  check_same_kind("cosine_similarity", a, b);
  const Shape shape = broadcast_shapes("cosine_similarity", a.shape(), b.shape());
  const Tensor left = normalize(expand(a, shape), 2, dim, eps);
  return sum(mul(left, normalize(expand(b, shape), 2, dim, eps)), int{dim});
}

Tensor pairwise_distance(const Tensor& a, const Tensor& b, Real p, Real eps, Flag keepdim) {
  check_same_kind("pairwise_distance", a, b);
  return norm(add(sub(a, b), double{eps}), p, -1, keepdim);
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                            Reduction reduction) {
  if (!weight) return binary_cross_entropy(x, target, reduction);
  const char* const name = "binary_cross_entropy";
  const Tensor losses =
      binary_cross_entropy(for_loss(name, x), for_loss(name, target), Reduction::None);
  return reduced(mul(losses, for_loss(name, weight, x)), reduction, x);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight, Reduction reduction) {
  if (!weight && !pos_weight) return binary_cross_entropy_with_logits(x, target, reduction);
  const char* const name = "binary_cross_entropy_with_logits";
  const Tensor wide = for_loss(name, x);
  const Tensor of = for_loss(name, target);
  Tensor losses = binary_cross_entropy_with_logits(wide, of, Reduction::None);
  if (pos_weight)
    losses = add(losses, mul(mul(of, sub(for_loss(name, pos_weight, x), 1)), softplus(neg(wide))));
  if (weight) losses = mul(losses, for_loss(name, weight, x));
  return reduced(losses, reduction, x);
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& y, Real margin,
                           Reduction reduction) {
  const char* const name = "margin_ranking_loss";
  const Tensor order = mul(for_loss(name, y, a), sub(for_loss(name, b, a), for_loss(name, a)));
  return reduced(relu(add(order, double{margin})), reduction, a);
}

Tensor hinge_embedding_loss(const Tensor& x_, const Tensor& y, Real margin, Reduction reduction) {
  const Tensor x = for_loss("hinge_embedding_loss", x_);
  const Tensor apart = relu(add(neg(x), double{margin}));
  check_repeats("hinge_embedding_loss", x, y);
  // A label that is neither 1 nor -1 counts as both, as in PyTorch.
  return reduced(add(where(ne(y, -1), x, 0), where(ne(y, 1), apart, 0)), reduction, x_);
}

Tensor soft_margin_loss(const Tensor& x, const Tensor& y, Reduction reduction) {
  const char* const name = "soft_margin_loss";
  return reduced(softplus(neg(mul(for_loss(name, x), for_loss(name, y, x)))), reduction, x);
}

Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& y, Real margin,
                             Reduction reduction) {
  const char* const name = "cosine_embedding_loss";
  const Tensor alike = cosine_similarity(for_loss(name, a), for_loss(name, b), -1);
  const Tensor apart = relu(sub(alike, double{margin}));
  check_repeats(name, alike, y);
  // A label that is neither 1 nor -1 counts as none, as in PyTorch.
  return reduced(add(where(eq(y, 1), add(neg(alike), 1), 0), where(eq(y, -1), apart, 0)), reduction,
                 a);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginOptions& options) {
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    const char* const name = "triplet_margin_loss";
    return pairwise_distance(for_loss(name, a), for_loss(name, b), options.p, options.eps);
  };
  Tensor apart = distance(anchor, negative);
  if (options.swap) apart = minimum(apart, distance(positive, negative));
  const Tensor losses = relu(add(sub(distance(anchor, positive), apart), options.margin));
  return reduced(losses, options.reduction, anchor);
}

Tensor poisson_nll_loss(const Tensor& x_, const Tensor& target, Flag log_input,
                        Reduction reduction) {
  const char* const name = "poisson_nll_loss";
  const Tensor x = for_loss(name, x_);
  const Tensor expected = log_input ? exp(x) : x;
  const Tensor logarithm = log_input ? x : log(add(x, 1e-8));
  return reduced(sub(expected, mul(for_loss(name, target, x), logarithm)), reduction, x_);
}

Tensor gaussian_nll_loss(const Tensor& x, const Tensor& target, const Tensor& var_, Real eps,
                         Reduction reduction) {
  const char* const name = "gaussian_nll_loss";
  CHECK(eps > 0, name, ": eps is ", eps, ", expected a number above 0");
  check_defined(name, x);
  const Tensor wide =
      for_loss(name, var_ && var_.dim() + 1 == x.dim() ? unsqueeze(var_, -1) : var_, x);
  CHECK(!wide.device().is_cpu() || !any(wide < 0).item<bool>(), name,
        ": the variance has elements below 0, expected none");
  // Below eps the gradient goes to the variance itself, as in PyTorch.
  const Tensor var = add(wide, sub(clamp_min(wide.detach(), double{eps}), wide.detach()));
  const Tensor squares = square(sub(for_loss(name, x), for_loss(name, target, x)));
  return reduced(mul(add(log(var), div(squares, var)), 0.5), reduction, x);
}

// Cross entropy for a target of class probabilities: -Σ w t log softmax(x), over dimension 1.
static Tensor of_probabilities(const Tensor& x_, const Tensor& target,
                               const ClassLossOptions& options) {
  const char* const name = "cross_entropy";
  const Tensor x = for_loss(name, x_);
  const int dim = x.dim() == 1 ? 0 : 1;
  CHECK_AS(ShapeError, x.dim() >= 1 && x.shape() == target.shape() && x.size(dim) > 0,
           "cross_entropy: the input has shape ", x.shape(), ", the probabilities ", target.shape(),
           ", expected equal ones, [N, C, …] or [C]");
  const auto classes = static_cast<double>(x.size(dim));
  Tensor t = for_loss(name, target);
  if (options.label_smoothing > 0)
    t = add(mul(t, 1 - options.label_smoothing), options.label_smoothing / classes);
  Tensor parts = mul(t, log_softmax(x, dim));
  if (options.weight) {
    Shape along = x.shape();
    for (int64_t& size : along) size = 1;
    along[dim] = x.size(dim);
    parts = mul(parts, reshape(for_loss(name, options.weight), along));
  }
  const Tensor losses = neg(sum(parts, dim));
  return options.reduction == Reduction::Mean  ? mean(losses)
         : options.reduction == Reduction::Sum ? sum(losses)
                                               : losses;
}

BEFORE_MAIN(class_probabilities, cross_entropy_of_probabilities = of_probabilities);

}  // namespace ringgrad
