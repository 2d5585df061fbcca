// Multi-head attention against its formula in double precision, with masks of every kind; the
// encoder against its parts.
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/nn/attention.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test::transformer_test {

namespace {

constexpr int64_t kWidth = 4;  // in two heads
constexpr int64_t kQueries = 3;
constexpr int64_t kKeys = 5;

enum class Kind : uint8_t { None, Excludes, Adds };

struct Case {
  Kind of_keys = Kind::None;
  Kind of_scores = Kind::None;
  bool for_each_head = false;
  bool batch = true;
  bool batch_first = false;
  bool bias = true;
  bool need_weights = true;
};

Tensor mask_of(Kind kind, const Shape& shape, uint32_t seed) {
  if (kind == Kind::None) return {};
  const Tensor numbers = random_tensor(shape, DType::Float64, seed);
  if (kind == Kind::Adds) return numbers;
  // Every query keeps the first key.
  return (numbers > 0) & (arange(shape[shape.dim() - 1]) > 0);
}

// Returns the term that element i of a mask adds to a score.
double term(const Tensor& mask, int64_t i) {
  if (!mask) return 0;
  const double value = values(reshape(mask, {-1}))[i];
  return mask.dtype() != DType::Bool ? value : value != 0 ? -INFINITY : 0;
}

struct Numbers {
  std::vector<double> y;        // [N, L, E]
  std::vector<double> weights;  // [N, L, S]
};

// q, k and v are [N, positions, E].
Numbers reference(nn::MultiheadAttention& module, const std::vector<Tensor>& qkv, const Case& of,
                  const Tensor& scores_mask, const Tensor& keys_mask) {
  const std::vector<double> weight = values(module.in_proj_weight);
  const std::vector<double> bias =
      of.bias ? values(module.in_proj_bias) : std::vector<double>(3 * kWidth, 0);
  const std::vector<double> out_weight = values(module.out_proj.weight);
  const std::vector<double> out_bias =
      of.bias ? values(module.out_proj.bias) : std::vector<double>(kWidth, 0);
  std::vector<std::vector<double>> projected;
  for (int64_t which = 0; which < 3; ++which) {
    const std::vector<double> x = values(qkv[which]);
    std::vector<double> all(x.size(), 0);
    for (size_t row = 0; row < x.size() / kWidth; ++row)
      for (int64_t to = 0; to < kWidth; ++to) {
        const int64_t place = which * kWidth + to;
        double sum = bias[place];
        for (int64_t from = 0; from < kWidth; ++from)
          sum += weight[place * kWidth + from] * x[row * kWidth + from];
        all[row * kWidth + to] = sum;
      }
    projected.push_back(all);
  }
  const int64_t samples = qkv[0].size(0);
  Numbers all = {std::vector<double>(samples * kQueries * kWidth, 0),
                 std::vector<double>(samples * kQueries * kKeys, 0)};
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t l = 0; l < kQueries; ++l) {
      std::vector<double> heads(kWidth, 0);
      for (int64_t head = 0; head < 2; ++head) {
        std::vector<double> share;
        double total = 0;
        for (int64_t s = 0; s < kKeys; ++s) {
          double score = 0;
          for (int64_t e = 2 * head; e < 2 * head + 2; ++e)
            score += projected[0][(n * kQueries + l) * kWidth + e] *
                     projected[1][(n * kKeys + s) * kWidth + e];
          const int64_t matrix = of.for_each_head ? 2 * n + head : 0;
          share.push_back(std::exp(score / std::sqrt(2.0) + term(keys_mask, n * kKeys + s) +
                                   term(scores_mask, (matrix * kQueries + l) * kKeys + s)));
          total += share.back();
        }
        for (int64_t s = 0; s < kKeys; ++s) {
          all.weights[(n * kQueries + l) * kKeys + s] += share[s] / total / 2;
          for (int64_t e = 2 * head; e < 2 * head + 2; ++e)
            heads[e] += share[s] / total * projected[2][(n * kKeys + s) * kWidth + e];
        }
      }
      for (int64_t to = 0; to < kWidth; ++to) {
        double sum = out_bias[to];
        for (int64_t e = 0; e < kWidth; ++e) sum += out_weight[to * kWidth + e] * heads[e];
        all.y[(n * kQueries + l) * kWidth + to] = sum;
      }
    }
  return all;
}

std::vector<double> of_encoder(nn::TransformerEncoder& encoder, const Tensor& x,
                               const Tensor& mask = {}, const Tensor& excluded = {}) {
  return values(encoder(x, mask, excluded));
}

}  // namespace

TEST_CASE("attention of several heads follows its formula, whatever the masks", "[quick]") {
  const Kind kinds[] = {Kind::None, Kind::Excludes, Kind::Adds};
  std::vector<Case> cases = {{.batch_first = true}, {.bias = false}};
  for (const Kind of_keys : kinds)
    for (const Kind of_scores : kinds)
      for (const bool for_each_head : {false, true})
        for (const bool need_weights : {false, true})
          for (const bool batch : {false, true})
            cases.push_back({.of_keys = of_keys,
                             .of_scores = of_scores,
                             .for_each_head = for_each_head,
                             .batch = batch,
                             .batch_first = for_each_head,
                             .need_weights = need_weights});
  manual_seed(3);
  for (const Case& of : cases) {
    const int64_t samples = of.batch ? 2 : 1;
    nn::MultiheadAttention module(kWidth, 2, {.bias = of.bias, .batch_first = of.batch_first});
    if (of.bias) copy_(module.in_proj_bias, random_tensor({3 * kWidth}, DType::Float32, 7));
    if (of.bias) copy_(module.out_proj.bias, random_tensor({kWidth}, DType::Float32, 8));
    std::vector<Tensor> qkv;
    std::vector<Tensor> given;
    for (const int64_t positions : {kQueries, kKeys, kKeys}) {
      qkv.push_back(random_tensor({samples, positions, kWidth}, DType::Float32,
                                  static_cast<uint32_t>(qkv.size() + 1), -2, 2));
      given.push_back(!of.batch        ? squeeze(qkv.back(), 0)
                      : of.batch_first ? qkv.back()
                                       : transpose(qkv.back(), 0, 1));
    }
    const Tensor scores_mask =
        mask_of(of.of_scores,
                of.for_each_head ? Shape{2 * samples, kQueries, kKeys} : Shape{kQueries, kKeys}, 4);
    const Tensor keys_mask = mask_of(of.of_keys, {samples, kKeys}, 5);
    const auto [y, weights] =
        module(given[0], given[1], given[2],
               {.key_padding_mask = keys_mask && !of.batch ? squeeze(keys_mask, 0) : keys_mask,
                .need_weights = of.need_weights,
                .attn_mask = scores_mask});
    INFO("keys " << int(of.of_keys) << ", scores " << int(of.of_scores) << ", each head "
                 << of.for_each_head << ", batch " << of.batch << ", weights " << of.need_weights);
    const Numbers want = reference(module, qkv, of, scores_mask, keys_mask);
    REQUIRE(y.shape() == given[0].shape());
    CHECK(difference(of.batch && !of.batch_first ? transpose(y, 0, 1) : y, want.y,
                     {DType::Float32, 3 * kWidth}) == "");
    REQUIRE(weights.defined() == of.need_weights);
    if (!weights) continue;
    CHECK(weights.shape() == (of.batch ? Shape{samples, kQueries, kKeys} : Shape{kQueries, kKeys}));
    CHECK(difference(weights, want.weights, {DType::Float32, 3 * kWidth}) == "");
  }
}

TEST_CASE("attention drops its weights in training only", "[quick]") {
  nn::MultiheadAttention module(kWidth, 2, {.dropout = 1});
  copy_(module.out_proj.bias, random_tensor({kWidth}, DType::Float32, 8));
  const Tensor x = random_tensor({1, 2, kWidth}, DType::Float32, 1);
  for (const bool need_weights : {false, true}) {
    const auto is_bias = [&] {
      const Tensor y = std::get<0>(module(x, x, x, {.need_weights = need_weights}));
      return all(y == module.out_proj.bias).item<bool>();
    };
    module.train();
    CHECK(is_bias());
    module.eval();
    CHECK(!is_bias());
  }
}

TEST_CASE("attention refuses what does not fit", "[quick]") {
  require_error<Error>("4 features in 3 heads", [] { nn::MultiheadAttention(4, 3); });
  require_error<Error>("4 features in 0 heads", [] { nn::MultiheadAttention(4, 0); });
  require_error<Error>("0 layers, expected at least 1", [] { nn::TransformerEncoder(0, 4, 2); });
  nn::MultiheadAttention module(kWidth, 2);
  const Tensor x = zeros({3, 2, kWidth});
  require_error<Error>("an input is an undefined tensor", [&] { module(x, Tensor(), x); });
  for (const Tensor& wrong : {zeros({3, 2, 5}), zeros({3, kWidth}), zeros({1, 3, 2, kWidth})})
    require_error<ShapeError>("expected 4 features in 3 dimensions", [&] { module(x, x, wrong); });
  require_error<ShapeError>("expected 4 features", [&] { module(zeros({1, 3, 2, kWidth}), x, x); });
  require_error<ShapeError>("the key_padding_mask has shape [3, 2], expected [2, 3]", [&] {
    module(x, x, x, {.key_padding_mask = zeros({3, 2}, {.dtype = DType::Bool})});
  });
}

TEST_CASE("an encoder's layers follow each other, each made of its parts", "[quick]") {
  manual_seed(5);
  const Tensor x = random_tensor({3, 2, kWidth}, DType::Float32, 1);
  const Tensor excluded = tensor<bool>({0, 0, 1, 0, 1, 0}, {2, 3});
  for (const bool norm_first : {false, true})
    for (const auto activation :
         {nn::TransformerActivation::Relu, nn::TransformerActivation::Gelu}) {
      nn::TransformerEncoder encoder(
          2, kWidth, 2,
          {.dim_feedforward = 6, .dropout = 0, .activation = activation, .norm_first = norm_first});
      Tensor want = x;
      for (size_t i = 0; i < 2; ++i) {
        auto& layer = encoder.layers.at<nn::TransformerEncoderLayer>(i);
        const auto attend = [&](const Tensor& of) {
          return std::get<0>(layer.self_attn(
              of, of, of,
              {.key_padding_mask = excluded, .attn_mask = nn::generate_square_subsequent_mask(3)}));
        };
        const auto feed = [&](const Tensor& of) {
          const Tensor inner = layer.linear1(of);
          std::vector<double> active = values(inner);
          for (double& a : active)
            a = activation == nn::TransformerActivation::Gelu
                    ? a * (1 + std::erf(a * std::sqrt(0.5))) / 2
                    : std::max(a, 0.0);
          return layer.linear2(to(tensor(active, inner.shape()), DType::Float32));
        };
        if (norm_first) {
          want = want + attend(layer.norm1(want));
          want = want + feed(layer.norm2(want));
        } else {
          want = layer.norm1(want + attend(want));
          want = layer.norm2(want + feed(want));
        }
      }
      const Tensor got = encoder(x, nn::generate_square_subsequent_mask(3), excluded);
      CHECK(difference(got, values(want), {DType::Float32, 64}) == "");
      CHECK(of_encoder(encoder, x) == values(encoder(x)));
    }
}

TEST_CASE("behind a triangular mask no position sees a later one", "[quick]") {
  const double no = -INFINITY;
  const Tensor mask = nn::generate_square_subsequent_mask(3, {.dtype = DType::Float64});
  CHECK(mask.dtype() == DType::Float64);
  CHECK(values(mask) == std::vector<double>{0, no, no, 0, 0, no, 0, 0, 0});
  manual_seed(6);
  nn::TransformerEncoder encoder(2, kWidth, 2, {.dim_feedforward = 6, .dropout = 0});
  const Tensor x = random_tensor({3, 1, kWidth}, DType::Float32, 1);
  const Tensor other = clone(x);
  fill_(other[2], 1);
  const std::vector<double> before = of_encoder(encoder, x, mask);
  const std::vector<double> after = of_encoder(encoder, other, mask);
  for (size_t i = 0; i < before.size(); ++i)
    CHECK((before[i] == after[i]) == (i < size_t{2 * kWidth}));
}

}  // namespace ringgrad::test::transformer_test
