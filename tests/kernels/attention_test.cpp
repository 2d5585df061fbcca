// Attention beyond its rows in op_specs_matmul.cpp: memory, threads, dropout, queries without keys.
#include <cmath>
#include <limits>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test::attention_test {

namespace {

struct Options {
  Tensor mask = {};
  double dropout_p = 0;
  bool is_causal = false;
};

// Returns y, dq, dk and dv of attention with the draws of one state.
std::vector<Tensor> run(const std::vector<Tensor>& qkv, const Options& options) {
  default_generator(qkv[0].device()).set_state(11, 3);
  std::vector<Tensor> leaves;
  for (const Tensor& x : qkv) {
    leaves.push_back(x.detach());
    leaves.back().set_requires_grad();
  }
  const Tensor y = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], options.mask,
                                                options.dropout_p, options.is_causal);
  y.backward(ones_like(y));
  std::vector<Tensor> all = {y.detach()};
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

// The same with the matrix of the weights, in double.
std::vector<Tensor> with_matrix(const std::vector<Tensor>& qkv, const Options& options) {
  default_generator(qkv[0].device()).set_state(11, 3);
  std::vector<Tensor> leaves;
  for (const Tensor& x : qkv) {
    leaves.push_back(to(x.detach(), DType::Float64).detach());
    leaves.back().set_requires_grad();
  }
  const double scale = 1 / std::sqrt(static_cast<double>(qkv[0].size(-1)));
  Tensor scores = matmul(leaves[0] * scale, transpose(leaves[1], -2, -1));
  if (options.is_causal)
    scores = masked_fill(scores, ~Mask(tril(ones(scores.shape(), {DType::Bool}))), -INFINITY);
  const Tensor y = matmul(dropout(softmax(scores, -1), options.dropout_p), leaves[2]);
  y.backward(ones_like(y));
  std::vector<Tensor> all = {y.detach()};
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

std::vector<Tensor> inputs(const Shape& q, int64_t keys, DType dtype) {
  Shape k = q;
  k[k.dim() - 2] = keys;
  return {random_tensor(q, dtype, 1), random_tensor(k, dtype, 2), random_tensor(k, dtype, 3)};
}

}  // namespace

// Four heads of 2048 × 2048 weights have 67 MB in float32. What forward and backward take grows
// with the length, and not with its square. Where vectors have no products of 16 bits, the inputs
// are widened to float32.
TEST_CASE("attention keeps no matrix of weights", "[quick]") {
  for (const DType dtype : {DType::Float32, DType::BFloat16})
    for (const bool is_causal : {false, true}) {
      const auto peak = [&](int64_t length) {
        const std::vector<Tensor> qkv = inputs({1, 4, length, 64}, length, dtype);
        const int64_t before = memory_stats({}).live_bytes;
        reset_peak_memory({});
        run(qkv, {.dropout_p = 0.1, .is_causal = is_causal});
        return memory_stats({}).peak_bytes - before;
      };
      const int64_t matrices = int64_t{4} * 2048 * 2048 * static_cast<int64_t>(sizeof(float));
      const int64_t of_long = peak(2048);
      INFO(dtype << ": " << of_long << " bytes at 2048, " << peak(1024) << " at 1024");
      CHECK(of_long < matrices / 2);
      CHECK(static_cast<double>(of_long) < 2.5 * static_cast<double>(peak(1024)));
    }
}

TEST_CASE("attention has the same bits with any number of threads", "[quick][threads]") {
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16})
    for (const Shape& q : {Shape{1, 1, 900, 8}, Shape{5, 4, 50, 8}})
      for (const bool is_causal : {false, true})
        require_same_on_any_threads(
            [&] { return run(inputs(q, 600, dtype), {.dropout_p = 0.2, .is_causal = is_causal}); });
}

// The draws are those of dropout() on the matrix: what a program trained before, it trains now.
TEST_CASE("attention drops the weights that dropout() would drop", "[quick]") {
  for (const DType dtype : kFloating)
    for (const int64_t keys : {3, 37, 301})
      for (const bool is_causal : {false, true}) {
        const std::vector<Tensor> qkv = inputs({2, 2, 61, 8}, keys, dtype);
        const Options options = {.dropout_p = 0.4, .is_causal = is_causal};
        const std::vector<Tensor> got = run(qkv, options);
        const std::vector<Tensor> want = with_matrix(qkv, options);
        INFO(dtype << ", " << keys << " keys");
        for (size_t i = 0; i < got.size(); ++i)
          CHECK(difference(got[i], values(want[i]), {dtype, keys}) == "");
      }
}

// As in PyTorch: zeros and no gradient where a query has no key, NaN where a score is NaN or +∞.
TEST_CASE("attention of queries without a key, and of infinite scores", "[quick]") {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloating) {
    const std::vector<Tensor> qkv = inputs({1, 2, 3, 4}, 5, dtype);
    const auto row = [](const Tensor& x, int64_t i) { return values(select(x, 2, i)); };
    const auto is_all = [](const std::vector<double>& all, const auto& test) {
      return std::all_of(all.begin(), all.end(), test);
    };
    const auto is_zero = [](double x) { return x == 0; };
    const auto is_nan = [](double x) { return std::isnan(x); };
    const auto is_usual = [](double x) { return std::isfinite(x) && x != 0; };
    const std::vector<double> lines[] = {
        {0, 0, 0, 0, 0},
        {-kInfinite, -kInfinite, -kInfinite, -kInfinite, -kInfinite},
        {0, kInfinite, 0, 0, 0},
        {0, std::nan(""), 0, 0, 0},
        {0, -kInfinite, 0, 0, 0}};
    for (size_t kind = 0; kind < std::size(lines); ++kind) {
      std::vector<double> all(15, 0);
      std::copy(lines[kind].begin(), lines[kind].end(), all.begin() + 5);
      const Tensor mask = to(tensor(all, {3, 5}), dtype);
      const std::vector<Tensor> got = run(qkv, {.mask = mask});
      INFO(dtype << ", kind " << kind);
      for (const int i : {0, 1}) {
        CHECK(is_all(row(got[i], 0), is_usual));
        CHECK(is_all(row(got[i], 2), is_usual));
        const std::vector<double> of_row = row(got[i], 1);
        CHECK((kind == 1                ? is_all(of_row, is_zero)
               : kind == 2 || kind == 3 ? is_all(of_row, is_nan)
                                        : is_all(of_row, is_usual)));
      }
      // An unused query has no part in the keys' gradients.
      if (kind != 2 && kind != 3)
        for (const int i : {2, 3}) CHECK(is_all(values(got[i]), is_usual));
    }
    const Tensor allowed = tensor<bool>({1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1}, {3, 5});
    const std::vector<Tensor> masked = run(qkv, {.mask = allowed});
    for (const int i : {0, 1}) CHECK(is_all(row(masked[i], 1), is_zero));
    for (const int i : {2, 3}) CHECK(is_all(values(masked[i]), is_usual));
  }
}

// Heads as a view of a projection: nothing is copied, and y is where the next projection reads it.
TEST_CASE("attention keeps the order of q's dimensions in memory", "[quick]") {
  const Tensor x = random_tensor({2, 7, 3, 4}, DType::Float32, 1);
  const Tensor heads = permute(x, {0, 2, 1, 3});
  const Tensor y = scaled_dot_product_attention(heads, heads, heads);
  CHECK(y.strides() == heads.strides());
  const Tensor plain = contiguous(heads);
  CHECK(values(scaled_dot_product_attention(plain, plain, plain)) == values(y));
}

TEST_CASE("attention is a product under autocast", "[quick]") {
  const Tensor x = random_tensor({2, 3, 4}, DType::Float32, 1);
  const AutocastGuard autocast;
  CHECK(scaled_dot_product_attention(x, x, x).dtype() == DType::BFloat16);
}

}  // namespace ringgrad::test::attention_test
