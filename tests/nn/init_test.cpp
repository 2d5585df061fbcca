// Initial values under PyTorch's names; those whose variance matters are in layers_test.cpp.
#include "ringgrad/nn/init.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::init_test {

TEST_CASE("orthogonal_ gives orthogonal rows, or columns where those are fewer", "[quick]") {
  manual_seed(1);
  for (const Shape& shape :
       {Shape{3, 5}, Shape{5, 3}, Shape{4, 4}, Shape{2, 3, 2, 1}, Shape{1, 1}, Shape{0, 3}}) {
    const Tensor w = empty(shape, {.dtype = DType::Float64});
    nn::init::orthogonal_(w, 2);
    if (w.numel() == 0) continue;
    const Tensor matrix = w.flatten(1);
    const Tensor wide = w.size(0) <= matrix.size(1) ? matrix : matrix.t();
    INFO(shape);
    CHECK(
        norm(wide.mm(wide.t()) - 4 * eye(wide.size(0), {.dtype = DType::Float64})).item<double>() <
        1e-12);
  }
  require_error<ShapeError>("init: the weight has shape [3], expected at least two dimensions",
                            [] { nn::init::orthogonal_(zeros({3})); });
}

TEST_CASE("normal_, uniform_ and constant_ write to a parameter that requires a gradient",
          "[quick]") {
  const Tensor w = zeros({1000}).requires_grad_();
  nn::init::normal_(w, 3, 0.5);
  CHECK(std::abs(w.detach().mean().item<double>() - 3) < 0.1);
  CHECK(std::abs(w.detach().std().item<double>() - 0.5) < 0.1);
  nn::init::uniform_(w, 2, 3);
  CHECK(w.detach().min().item<double>() >= 2);
  nn::init::constant_(w, 7);
  CHECK(w.detach().max().item<double>() == 7);
}

}  // namespace ringgrad::test::init_test
