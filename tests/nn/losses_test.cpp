// Loss modules are the functions of their names; golden_ops_test has those functions' numbers.
#include "ringgrad/nn/losses.h"

#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
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

TEST_CASE("labels other than 1 and -1 count as they do in PyTorch", "[quick]") {
  const Tensor x = tensor<float>({0.25, 0.25, 0.5, 0.625, 2, 0.5});
  for (const Tensor& y :
       {tensor<float>({1, -1, 0, 2, 0.5, NAN}), tensor<float>({1, -1, 3, 0, 0, 9})}) {
    // As both labels: x, and what is lacking to the margin.
    CHECK(values(hinge_embedding_loss(x, y, 1, Reduction::None)) ==
          std::vector<double>{0.25, 0.75, 1, 1, 2, 1});
    // As neither.
    const Tensor a = ones({6, 2});
    CHECK(difference(cosine_embedding_loss(a, a, y, 0, Reduction::None), {0, 1, 0, 0, 0, 0},
                     {DType::Float32, 2}) == "");
  }
  CHECK(values(hinge_embedding_loss(x, tensor<int64_t>({1, -1, 0, 2, 5, 7}), 1, Reduction::None)) ==
        std::vector<double>{0.25, 0.75, 1, 1, 2, 1});
  const Tensor order = tensor<float>({1, -1, 0, 2, 0.5, 1});  // times the difference, as it is
  CHECK(values(margin_ranking_loss(x, x * 2, order, 0, Reduction::None)) ==
        std::vector<double>{0.25, 0, 0, 1.25, 1, 0.5});
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

// A loss of [N] and [N, 1] would be one of N x N pairs, and look like a loss.
TEST_CASE("targets and weights are repeated to the input's shape, and the input is not",
          "[quick]") {
  const Tensor x = rand({3});
  const Tensor t = rand({3});
  const Tensor column = ones({3, 1});
  const auto refuses = [](const char* name, auto loss) {
    require_error<ShapeError>(str(name, ": the input has shape [3], a target or weight [3, 1]"),
                              loss);
  };
  refuses("margin_ranking_loss", [&] { margin_ranking_loss(x, column, t); });
  refuses("margin_ranking_loss", [&] { margin_ranking_loss(x, t, column); });
  refuses("soft_margin_loss", [&] { soft_margin_loss(x, column); });
  refuses("hinge_embedding_loss", [&] { hinge_embedding_loss(x, column); });
  refuses("poisson_nll_loss", [&] { poisson_nll_loss(x, column); });
  refuses("gaussian_nll_loss", [&] { gaussian_nll_loss(x, column, t); });
  refuses("gaussian_nll_loss", [&] { gaussian_nll_loss(x, t, column); });
  refuses("binary_cross_entropy", [&] { binary_cross_entropy(x, t, column); });
  refuses("binary_cross_entropy_with_logits",
          [&] { binary_cross_entropy_with_logits(x, t, column); });
  refuses("binary_cross_entropy_with_logits",
          [&] { binary_cross_entropy_with_logits(x, t, {}, column); });
  refuses("cosine_embedding_loss", [&] {
    cosine_embedding_loss(rand({3, 2}), rand({3, 2}), column);
  });
  // A label for all is repeated.
  CHECK(values(soft_margin_loss(x, ones({1}))) == values(soft_margin_loss(x, ones({3}))));
}

TEST_CASE("a variance that lacks the last dimension has a number for each row", "[quick]") {
  const Tensor x = zeros({2, 2});
  const Tensor t = ones({2, 2});
  // PyTorch's numbers, for the variances 1 and 4: 1/2, and log 2 + 1/8.
  const std::vector<double> want = {0.5, 0.5, 0.8181471805599453, 0.8181471805599453};
  for (const Shape& shape : {Shape{2}, Shape{2, 1}}) {
    const Tensor var = tensor<float>({1, 4}).reshape(shape);
    CHECK(difference(gaussian_nll_loss(x, t, var, 1e-6, Reduction::None), want, {DType::Float32}) ==
          "");
  }
  require_error<ShapeError>("gaussian_nll_loss", [&] { gaussian_nll_loss(x, t, ones({3})); });
  require_error<ShapeError>("gaussian_nll_loss", [] {
    gaussian_nll_loss(zeros({1, 3}), zeros({1, 3}), ones({3}));
  });
  require_error<Error>("gaussian_nll_loss: the variance has elements below 0", [&] {
    gaussian_nll_loss(x, t, tensor<float>({1, -1}));
  });
}

TEST_CASE("a probability below 0 makes kl_div NaN, and a target of no class is named", "[quick]") {
  const Tensor x = tensor<float>({-1, -1, -1});
  const Tensor loss = kl_div(x, tensor<float>({-0.5, 0, 1}), Reduction::None);
  CHECK(difference(loss, {NAN, 0, 1}, {DType::Float32}) == "");
  const Tensor weight = tensor<float>({1, 2});
  const Tensor target = tensor<int64_t>({0, 1, -100});
  CHECK(loss_divisor(target) == 2);
  CHECK(loss_divisor(target, {.weight = weight}) == 3);
  require_error<IndexError>("loss_divisor: a target is 2, expected the number of a class", [&] {
    loss_divisor(tensor<int64_t>({0, 2}), {.weight = weight});
  });
  require_error<IndexError>("loss_divisor: a target is -1",
                            [] { loss_divisor(tensor<int64_t>({-1})); });
}

}  // namespace ringgrad::test::losses_test
