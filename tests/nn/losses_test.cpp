// Loss modules are the functions of their names; golden_ops_test has those functions' numbers.
#include "ringgrad/nn/losses.h"

#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::losses_test {

namespace {

std::vector<double> values(const Tensor& x) { return to_vector<double>(x); }
constexpr Reduction kReductions[] = {Reduction::Mean, Reduction::Sum, Reduction::None};

}  // namespace

TEST_CASE("loss modules are the functions of their names", "[quick]") {
  manual_seed(1);
  const Tensor x = randn({4, 3});
  const Tensor t = rand({4, 3});
  const Tensor p = rand({4, 3});
  const Tensor sign = where(randn({4, 3}) > 0, ones({4, 3}), -1);
  const Tensor w = rand({3});
  for (const Reduction r : kReductions) {
    CHECK(values(nn::MSELoss({.reduction = r})(x, t)) == values(mse_loss(x, t, r)));
    CHECK(values(nn::L1Loss({.reduction = r})(x, t)) == values(l1_loss(x, t, r)));
    CHECK(values(nn::SoftMarginLoss({.reduction = r})(x, sign)) ==
          values(soft_margin_loss(x, sign, r)));
    CHECK(values(nn::HuberLoss(0.5, {.reduction = r})(x, t)) == values(huber_loss(x, t, 0.5, r)));
    CHECK(values(nn::SmoothL1Loss(0.5, {.reduction = r})(x, t)) ==
          values(smooth_l1_loss(x, t, 0.5, r)));
    CHECK(values(nn::HingeEmbeddingLoss(2, {.reduction = r})(x, sign)) ==
          values(hinge_embedding_loss(x, sign, 2, r)));
    CHECK(values(nn::BCELoss({.weight = w, .reduction = r})(p, t)) ==
          values(binary_cross_entropy(p, t, w, r)));
    CHECK(values(nn::BCEWithLogitsLoss({.pos_weight = w, .reduction = r})(x, t)) ==
          values(binary_cross_entropy_with_logits(x, t, {}, w, r)));
    CHECK(values(nn::KLDivLoss({.reduction = r})(x, t)) == values(kl_div(x, t, r)));
    CHECK(values(nn::PoissonNLLLoss({.log_input = false, .reduction = r})(p, t)) ==
          values(poisson_nll_loss(p, t, false, r)));
    CHECK(values(nn::GaussianNLLLoss({.reduction = r})(x, t, p)) ==
          values(gaussian_nll_loss(x, t, p, 1e-6, r)));
    CHECK(values(nn::MarginRankingLoss(0.5, {.reduction = r})(x, t, sign)) ==
          values(margin_ranking_loss(x, t, sign, 0.5, r)));
    CHECK(values(nn::TripletMarginLoss({.margin = 2, .reduction = r})(x, t, p)) ==
          values(triplet_margin_loss(x, t, p, {.margin = 2, .reduction = r})));
  }
  CHECK(std::abs(nn::KLDivLoss({.batchmean = true})(x, t).item<double>() -
                 kl_div(x, t, Reduction::Sum).item<double>() / 4) < 1e-6);
}

TEST_CASE("losses of classes take indices, or probabilities", "[quick]") {
  manual_seed(2);
  const Tensor x = randn({4, 3});
  const Tensor target = tensor<int64_t>({2, 0, 1, 2});
  const Tensor weight = tensor<float>({1, 2, 3});
  nn::CrossEntropyLoss loss({.weight = weight, .ignore_index = 1});
  CHECK(values(loss(x, target)) ==
        values(cross_entropy(x, target, {.weight = weight, .ignore_index = 1})));
  CHECK(values(nn::NLLLoss()(log_softmax(x), target)) == values(nll_loss(log_softmax(x), target)));
  loss.weight = tensor<float>({1, 1, 1});  // a buffer: what it becomes counts
  CHECK(loss.named_buffers().size() == 1);
  CHECK(values(loss(x, target)) == values(cross_entropy(x, target, {.ignore_index = 1})));
  // A class as certain probability is the class.
  const Tensor certain = one_hot(target, 3);
  CHECK(difference(nn::CrossEntropyLoss()(x, certain), values(cross_entropy(x, target)),
                   {DType::Float32, 3}) == "");
  require_error<ShapeError>("cross_entropy: the input has shape [4, 3], the probabilities [4, 2]",
                            [&] {
                              cross_entropy(x, rand({4, 2}));
                            });
}

TEST_CASE("weights of 16-bit losses are rounded once", "[quick]") {
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const Tensor x = to(tensor<double>({-1, 0.5, 2, 3}), dtype);
    const Tensor t = to(tensor<double>({0.25, 0.5, 1, 0}), dtype);
    const Tensor w = to(tensor<double>({1, 2, 3, 4}), dtype);
    const Tensor wide = binary_cross_entropy_with_logits(
        to(x, DType::Float64), to(t, DType::Float64), to(w, DType::Float64));
    const Tensor narrow = binary_cross_entropy_with_logits(x, t, w);
    CHECK(narrow.dtype() == dtype);
    CHECK(difference(narrow, values(wide), {dtype, 1}) == "");
  }
}

}  // namespace ringgrad::test::losses_test
