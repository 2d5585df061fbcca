// The operations of layers say what does not fit, and what would.
#include <functional>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/recurrent_ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::layer_checks_test {

namespace {

void misfit(const std::string& text, const std::function<void()>& f) {
  require_error<ShapeError>(text, f);
}
void refused(const std::string& text, const std::function<void()>& f) {
  require_error<Error>(text, f);
}

}  // namespace

TEST_CASE("batch norm refuses arguments of other channels, dtypes and sizes", "[quick]") {
  const Tensor x = ones({2, 3, 4, 5});
  const Tensor each = ones({3});
  const Tensor wide = ones({3}, {.dtype = DType::Float64});
  const auto norm = [&](const Tensor& weight, const Tensor& mean, const BatchNormOptions& options) {
    return [=] { batch_norm(x, weight, {}, mean, mean, options); };
  };
  misfit("batch_norm: the weight has shape [2], the input [2, 3, 4, 5], expected [3]",
         norm(ones({2}), {}, {}));
  misfit("the weight has shape [3, 1]", norm(ones({3, 1}), {}, {}));
  misfit("the running mean has shape [4]", norm({}, ones({4}), {}));
  require_error<DTypeError>("the weight has dtype float64, the input float32, expected float32",
                            norm(wide, {}, {}));
  require_error<DTypeError>("the running mean has dtype float64", norm({}, wide, {}));
  const Tensor narrow = to(x, DType::BFloat16);
  require_error<DTypeError>("the running mean has dtype bfloat16, the input bfloat16, expected",
                            [&] {
                              const Tensor mean = to(each, DType::BFloat16);
                              batch_norm(narrow, {}, {}, mean, mean);
                            });
  CHECK(batch_norm(narrow, to(each, DType::BFloat16), each, {}, {}).dtype() == DType::BFloat16);
  refused("evaluation needs the running mean and variance", norm({}, {}, {.training = false}));
  refused("evaluation needs the running mean and variance",
          [&] { batch_norm(x, {}, {}, each, {}, {.training = false}); });
  for (const Tensor& batches :
       {zeros({}), zeros({2}, {.dtype = DType::Int64}), zeros({0}, {.dtype = DType::Int64})})
    refused("the number of batches is", norm({}, each, {.batches = batches}));
  refused("max_pool is -1", norm({}, {}, {.max_pool = -1}));
  misfit("to be pooled by 5×5", norm({}, {}, {.max_pool = 5}));
  misfit("to be pooled by 2×2", [] { batch_norm(ones({2, 3}), {}, {}, {}, {}, {.max_pool = 2}); });
  misfit("the residual has shape [2, 3, 4, 1]", norm({}, {}, {.residual = ones({2, 3, 4, 1})}));
}

TEST_CASE("pools refuse windows that do not fit", "[quick]") {
  const Tensor x = ones({1, 1, 4, 6});
  const auto pool = [&](const Pool2dOptions& options) { return [=] { avg_pool2d(x, options); }; };
  for (const Pair wrong : {Pair(0, 1), Pair(1, 0)})
    refused("expected 1 to", pool({.kernel = wrong}));
  for (const Pair wrong : {Pair(0, 1), Pair(1, 0), Pair(-1, 1)})
    refused("expected 1 to", pool({.kernel = 2, .stride = wrong}));
  for (const Pair wrong : {Pair(-1, 0), Pair(0, -1)})
    refused("expected 0 to", pool({.kernel = 2, .padding = wrong}));
  for (const Pair wrong : {Pair(2, 0), Pair(0, 2)})
    refused("expected at most half the kernel", pool({.kernel = 2, .padding = wrong}));
  for (const Pair wrong : {Pair(5, 1), Pair(1, 7)})
    misfit("does not fit into the input [1, 1, 4, 6]", pool({.kernel = wrong}));
  for (const Shape& shape : {Shape{1, 1, 0, 4}, Shape{1, 1, 4, 0}}) {
    misfit("does not fit", [&] { avg_pool2d(ones(shape), {.kernel = 2, .padding = 1}); });
    misfit("has no pixels", [&] { adaptive_avg_pool2d(ones(shape), 1); });
  }
  for (const Pair wrong : {Pair(-1, 1), Pair(1, -1)})
    refused("the output size is", [&] { adaptive_avg_pool2d(x, wrong); });
}

TEST_CASE("recurrent layers' operations refuse weights, states and batches that do not fit",
          "[quick]") {
  const Tensor x = ones({5, 2, 3});  // a GRU of one unit
  const Tensor weight = ones({3, 1});
  const auto layer = [&](const Tensor& in, const Tensor& w, const Tensor& h = {},
                         const std::vector<int64_t>& batches = {}) {
    return [=] { gru_layer(in, h, w, {}, false, batches); };
  };
  misfit("gru_layer: the input has shape [5, 2, 3], the weight [3, 2]", layer(x, ones({3, 2})));
  misfit("the input has shape [5, 2, 4]", layer(ones({5, 2, 4}), weight));
  misfit("the input has shape [5, 2, 0], the weight [0, 0]", layer(ones({5, 2, 0}), ones({0, 0})));
  misfit("the state has shape [2, 2], expected [2, 1]", layer(x, weight, ones({2, 2})));
  const Tensor rows = ones({3, 3});
  misfit("batch size 1 is 3, expected", layer(rows, weight, {}, {2, 3}));
  misfit("batch size 1 is 0, expected", layer(rows, weight, {}, {2, 0}));
  misfit("the input has 3 rows, the batch sizes together more, expected as many",
         layer(rows, weight, {}, {2, 2}));
  misfit("gru_layer: the bias has shape [1], expected [3]",
         [&] { gru_layer(x, {}, weight, ones({1})); });
}

TEST_CASE("embedding refuses a weight without rows, and padding outside", "[quick]") {
  const Tensor index = tensor<int64_t>({0, 1});
  misfit("embedding: the weight has shape []", [&] { embedding(index, ones({})); });
  for (const int64_t row : {-3, 2})
    require_error<IndexError>("embedding: padding_idx is " + std::to_string(row), [&] {
      embedding(index, ones({2, 3}), row);
    });
  // The last row gets no gradient.
  const Tensor weight = Tensor(ones({2, 3})).set_requires_grad();
  sum(embedding(index, weight, -1)).backward();
  CHECK(to_vector<double>(weight.grad()) == std::vector<double>{1, 1, 1, 0, 0, 0});
}

}  // namespace ringgrad::test::layer_checks_test
