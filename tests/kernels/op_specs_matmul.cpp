// Rows for matrix products, and for what is made of them: layers of recurrent networks, attention.
#include <array>
#include <cmath>
#include <optional>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/recurrent_ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {

namespace {

// All results as one tensor: the suites go back from each tensor by itself.
Tensors results_of(const RecurrentResult& of) {
  Tensors all;
  for (const Tensor& result : {of.y, of.h, of.c})
    if (result) all.push_back(reshape(result, {result.numel()}));
  return {cat(all)};
}

// Layers of recurrent networks, at whose formulas tests/golden/composed_ops.py looks.
std::vector<OpSpec> recurrent_specs() {
  std::vector<OpSpec> specs;
  const auto inputs = [](int64_t steps, int64_t samples, int64_t size, int64_t gates) {
    return std::vector<Input>{uniform({steps, samples, gates * size}),
                              uniform({samples, size}, -1, 1),
                              uniform({gates * size, size}, -0.5, 0.5)};
  };
  const auto layers = [&](int64_t gates, void (*more)(std::vector<Input>&)) {
    std::vector<Sample> samples;
    for (const auto& [t, n, h] :
         {std::array{3, 2, 5}, {1, 3, 1}, {4, 1, 17}, {2, 0, 3}, {0, 2, 3}}) {
      std::vector<Input> all = inputs(t, n, h, gates);
      more(all);
      samples.push_back(Sample(all, true));
    }
    return samples;
  };
  for (const bool reverse : {false, true}) {
    const std::string end = reverse ? " in reverse" : "";
    specs.push_back({.name = "lstm_layer" + end,
                     .kernels = {"lstm_cell", "lstm_cell_backward", "matmul", "add", "copy"},
                     .run =
                         [=](const Tensors& in) {
                           return results_of(lstm_layer(in[0], in[1], in[3], in[2], reverse));
                         },
                     .samples = layers(4, [](std::vector<Input>& all) { all.push_back(all[1]); }),
                     .terms = 20});
    specs.push_back(
        {.name = "gru_layer" + end,
         .kernels = {"gru_cell", "gru_cell_backward", "matmul", "add", "copy", "sum"},
         .run =
             [=](const Tensors& in) {
               return results_of(gru_layer(in[0], in[1], in[2], in[3], reverse));
             },
         .samples =
             layers(3, [](std::vector<Input>& all) { all.push_back(uniform({all[2].shape[0]})); }),
         .terms = 20});
  }
  specs.push_back(
      {.name = "rnn_layer",
       .kernels = {"tanh", "tanh_backward", "matmul", "add", "copy"},
       .run = [](const Tensors& in) { return results_of(rnn_layer(in[0], in[1], in[2])); },
       .samples = layers(1, [](std::vector<Input>&) {}),
       .terms = 20});
  // Samples of different lengths: R rows, as many as the batch sizes have together.
  const std::vector<int64_t> batch_sizes = {4, 3, 3, 1};
  const auto packed = [](int64_t gates, void (*more)(std::vector<Input>&)) {
    std::vector<Input> all = {uniform({11, gates * 3}), uniform({4, 3}, -1, 1),
                              uniform({gates * 3, 3}, -0.5, 0.5)};
    more(all);
    return std::vector<Sample>{Sample(all, true)};
  };
  for (const bool reverse : {false, true}) {
    const std::string end = reverse ? " of packed rows in reverse" : " of packed rows";
    const auto add = [&](const std::string& name, const std::vector<std::string>& kernels,
                         const std::function<RecurrentResult(const Tensors&)>& run,
                         const std::vector<Sample>& samples) {
      specs.push_back({.name = name + end,
                       .kernels = kernels,
                       .run = [run](const Tensors& in) { return results_of(run(in)); },
                       .samples = samples,
                       .terms = 20,
                       .never_empty = "a step has at least one sample"});
    };
    add(
        "lstm_layer", {"lstm_cell", "lstm_cell_backward", "matmul", "add", "copy"},
        [=](const Tensors& in) {
          return lstm_layer(in[0], in[1], in[3], in[2], reverse, batch_sizes);
        },
        packed(4, [](std::vector<Input>& all) { all.push_back(all[1]); }));
    add(
        "gru_layer", {"gru_cell", "gru_cell_backward", "matmul", "add", "copy", "sum"},
        [=](const Tensors& in) {
          return gru_layer(in[0], in[1], in[2], in[3], reverse, batch_sizes);
        },
        packed(3, [](std::vector<Input>& all) { all.push_back(uniform({all[2].shape[0]})); }));
    add(
        "rnn_layer", {"tanh", "tanh_backward", "matmul", "add", "copy"},
        [=](const Tensors& in) {
          return rnn_layer(in[0], in[1], in[2], RecurrentActivation::Tanh, reverse, batch_sizes);
        },
        packed(1, [](std::vector<Input>&) {}));
  }
  specs[0].errors = {
      error<ShapeError>("lstm_layer: batch size 1 is 3, expected at least 1 and at most the one",
                        [] {
                          lstm_layer(zeros({5, 8}), {}, {}, zeros({8, 2}), false, {2, 3});
                        }),
      error<ShapeError>("lstm_layer: the input has 5 rows, the batch sizes together 4",
                        [] {
                          lstm_layer(zeros({5, 8}), {}, {}, zeros({8, 2}), false, {2, 2});
                        }),
      error<ShapeError>("lstm_layer: the input has shape [2, 3, 8], the weight [8, 3], expected",
                        [] {
                          lstm_layer(zeros({2, 3, 8}), {}, {}, zeros({8, 3}));
                        }),
      error<ShapeError>("lstm_layer: the state has shape [2], expected [3, 2]", [] {
        lstm_layer(zeros({2, 3, 8}), zeros({2}), {}, zeros({8, 2}));
      })};
  return specs;
}

// The way in which a row of attention weighs keys.
struct Attending {
  bool is_causal = false;
  bool is_bool = false;  // input 3 is a mask of 0 and 1, else it is added
  double dropout_p = 0;
  std::optional<double> scale = {};
};

OpSpec attention_spec(const std::string& name, const Attending& by, std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"attention", "attention_backward"};
  spec.terms = 64;
  spec.samples = std::move(samples);
  spec.run = [by](const Tensors& in) {
    default_generator(in[0].device()).set_state(77, 5);
    const Tensor mask = in.size() <= 3 ? Tensor() : by.is_bool ? Tensor(in[3] > 0.5) : in[3];
    return Tensors{scaled_dot_product_attention(in[0], in[1], in[2], mask, by.dropout_p,
                                                by.is_causal, by.scale)};
  };
  // Dropout is compared with the reference kernel, and in attention_test.cpp.
  if (by.dropout_p > 0) return spec;
  spec.reference = [by](const Arrays& in) {
    const auto batch = [&](size_t i) {
      return Shape(std::span(in[i].shape.begin(), static_cast<size_t>(in[i].shape.dim() - 2)));
    };
    const auto of = [](const Array& x, int d) { return x.size(x.shape.dim() - d); };
    Shape shape = broadcast_shapes("", broadcast_shapes("", batch(0), batch(1)), batch(2));
    const int64_t heads = shape.numel();
    const Shape outer = shape;
    const int64_t queries = of(in[0], 2);
    const int64_t keys = of(in[1], 2);
    const int64_t width = of(in[0], 1);
    shape.push_back(queries);
    shape.push_back(of(in[2], 1));
    const double scale = by.scale.value_or(1 / std::sqrt(static_cast<double>(width)));
    Array y(shape);
    // The element of a broadcast array at (head, row, column).
    const auto at = [&](const Array& x, int64_t head, int64_t row, int64_t column) {
      Shape index = Array(outer).index(head);
      index.push_back(row);
      index.push_back(column);
      Shape own = x.shape;
      for (int d = 0; d < own.dim(); ++d)
        own[d] = x.shape[d] == 1 ? 0 : index[index.dim() - own.dim() + d];
      return x.values[x.offset(own)];
    };
    for (int64_t n = 0; n < heads; ++n)
      for (int64_t i = 0; i < queries; ++i) {
        std::vector<double> weights;
        double sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          double score = 0;
          for (int64_t e = 0; e < width; ++e)
            score += scale * at(in[0], n, i, e) * at(in[1], n, j, e);
          if (in.size() > 3 && !by.is_bool) score += at(in[3], n, i, j);
          const bool used =
              !(by.is_causal && j > i) && !(in.size() > 3 && by.is_bool && at(in[3], n, i, j) == 0);
          weights.push_back(used ? std::exp(score) : 0);
          sum += weights.back();
        }
        for (int64_t f = 0; f < of(in[2], 1); ++f) {
          double& to = y.values[(n * queries + i) * of(in[2], 1) + f];
          for (int64_t j = 0; j < keys && sum > 0; ++j) to += weights[j] / sum * at(in[2], n, j, f);
        }
      }
    return Arrays{y};
  };
  return spec;
}

std::vector<OpSpec> attention_specs() {
  const auto of = [](const Shape& q, const Shape& k, int64_t out, std::vector<Input> more = {}) {
    Shape v = k;
    v[v.dim() - 1] = out;
    std::vector<Input> all = {uniform(q), uniform(k), uniform(v)};
    all.insert(all.end(), more.begin(), more.end());
    return Sample(all, true);
  };
  const Input unused_query = literal({3, 5}, {1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1});
  const auto zeros_and_ones = [](const Shape& shape) { return whole(shape, 0, 2).without_grad(); };
  std::vector<OpSpec> specs = {
      attention_spec("scaled_dot_product_attention", {},
                     {of({2, 3, 4}, {2, 5, 4}, 3), of({3, 4}, {5, 4}, 4), of({1, 1}, {1, 1}, 1),
                      of({2, 2, 3, 4}, {2, 2, 6, 4}, 4), of({2, 1, 3, 4}, {3, 2, 4}, 1),
                      of({2, 1, 2, 3, 2}, {2, 2, 1, 3, 2}, 2), of({2, 70, 20}, {2, 150, 20}, 35),
                      of({1, 1, 400, 3}, {1, 1, 33, 3}, 17), of({1, 3, 130}, {1, 7, 130}, 70),
                      of({0, 3, 4}, {0, 5, 4}, 3), of({2, 0, 4}, {2, 5, 4}, 3),
                      of({2, 3, 4}, {2, 0, 4}, 3), of({2, 3, 4}, {2, 5, 4}, 0)}),
      attention_spec("causal attention", {.is_causal = true},
                     {of({2, 4, 3}, {2, 4, 3}, 2), of({2, 5, 3}, {2, 3, 3}, 3),
                      of({1, 3, 3}, {1, 6, 3}, 3), of({1, 150, 8}, {1, 150, 8}, 8),
                      of({1, 20, 4}, {1, 140, 4}, 4), of({2, 0, 3}, {2, 4, 3}, 2)}),
      attention_spec("attention with a mask", {.is_bool = true},
                     {of({3, 4}, {5, 4}, 2, {unused_query.without_grad()}),
                      of({2, 2, 3, 4}, {2, 2, 5, 4}, 4, {zeros_and_ones({2, 1, 1, 5})}),
                      of({2, 2, 3, 4}, {2, 2, 5, 4}, 4, {zeros_and_ones({2, 2, 3, 1})}),
                      of({2, 50, 4}, {2, 140, 4}, 4, {zeros_and_ones({50, 140})}),
                      of({2, 0, 4}, {2, 5, 4}, 3, {zeros_and_ones({0, 5})})}),
      attention_spec("attention with a term", {},
                     {of({2, 3, 4}, {2, 5, 4}, 2, {uniform({3, 5}).without_grad()}),
                      of({2, 2, 3, 4}, {2, 2, 5, 4}, 4, {uniform({2, 1, 1, 5}).without_grad()}),
                      of({2, 0, 4}, {2, 5, 4}, 3, {uniform({0, 5}).without_grad()})}),
      attention_spec("attention with a term that has a gradient", {},
                     {of({2, 3, 4}, {2, 5, 4}, 2, {uniform({3, 5})}),
                      of({2, 0, 4}, {2, 5, 4}, 3, {uniform({0, 5})})}),
      attention_spec("attention with a scale", {.scale = -0.25},
                     {of({2, 3, 4}, {2, 5, 4}, 3), of({2, 0, 4}, {2, 5, 4}, 3)}),
      attention_spec("attention with dropout", {.dropout_p = 0.3},
                     {of({2, 2, 3, 4}, {2, 2, 5, 4}, 3), of({1, 50, 4}, {1, 140, 4}, 4),
                      of({2, 0, 4}, {2, 5, 4}, 3)}),
      attention_spec("causal attention with dropout", {.is_causal = true, .dropout_p = 0.5},
                     {of({1, 60, 4}, {1, 60, 4}, 4), of({2, 0, 4}, {2, 5, 4}, 3)}),
      attention_spec("attention with dropout of everything", {.dropout_p = 1},
                     {of({2, 3, 4}, {2, 5, 4}, 3), of({2, 0, 4}, {2, 5, 4}, 3)})};
  const auto fails = [](const Shape& q, const Shape& k, const Shape& v, const Tensor& mask = {},
                        double p = 0, bool causal = false) {
    return [=] { scaled_dot_product_attention(zeros(q), zeros(k), zeros(v), mask, p, causal); };
  };
  const Shape x = {2, 3, 4};
  specs[0].errors = {
      error<ShapeError>("scaled_dot_product_attention: q is [2, 3, 4], k [2, 3, 5], v [2, 3, 4], "
                        "expected [..., L, E], [..., S, E] and [..., S, F]",
                        fails(x, {2, 3, 5}, x)),
      error<ShapeError>("scaled_dot_product_attention: q is [2, 3, 4], k [2, 3, 4], v [2, 2, 4]",
                        fails(x, x, {2, 2, 4})),
      error<ShapeError>("scaled_dot_product_attention: an argument has shape [4], expected",
                        fails(x, x, {4})),
      error<ShapeError>("scaled_dot_product_attention: shapes [2] and [3]", fails(x, {3, 3, 4}, x)),
      error<ShapeError>("scaled_dot_product_attention: the mask has shape [2, 2, 3, 3], expected "
                        "one that broadcasts to [2, 3, 3]",
                        fails(x, x, x, zeros({2, 2, 3, 3}))),
      error<DTypeError>("scaled_dot_product_attention: the mask has dtype int64, expected bool, or",
                        fails(x, x, x, zeros({3, 3}, {DType::Int64}))),
      error<Error>("scaled_dot_product_attention: there is a mask, and is_causal is set",
                   fails(x, x, x, zeros({3, 3}), 0, true)),
      error<Error>("scaled_dot_product_attention: dropout_p is 1.5, expected a number in [0, 1]",
                   fails(x, x, x, {}, 1.5)),
      error<DTypeError>("scaled_dot_product_attention: dtypes float32 and float64 differ", [] {
        const Tensor wide = zeros({2, 2}, {DType::Float64});
        scaled_dot_product_attention(zeros({2, 2}), wide, wide);
      })};
  return specs;
}

}  // namespace

std::vector<OpSpec> matmul_specs() {
  std::vector<OpSpec> specs = recurrent_specs();
  for (OpSpec& spec : attention_specs()) specs.push_back(std::move(spec));
  const auto fails = [](const Shape& a, const Shape& b) {
    return [=] { matmul(zeros(a), zeros(b)); };
  };
  specs
      .push_back(
          {.name = "matmul",
           .kernels = {"matmul"},
           .run = [](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; },
           .samples = {{uniform({2, 3}), uniform({3, 4})},
                       {uniform({1, 1}), uniform({1, 1})},
                       // One row, and a sum of one: strides that mean nothing.
                       {uniform({1, 5}), uniform({5, 4})},
                       {uniform({4, 1}), uniform({1, 5})},
                       {uniform({17, 33}), uniform({33, 9})},
                       {uniform({100, 129}), uniform({129, 10})},
                       {uniform({2, 51, 140}), uniform({140, 33})},
                       {uniform({3, 2, 4}), uniform({3, 4, 5})},
                       {uniform({3, 2, 4}), uniform({4, 5})},
                       {uniform({2, 4}), uniform({3, 4, 5})},
                       {uniform({0, 3}), uniform({3, 4})},
                       {uniform({2, 0}), uniform({0, 4})},  // a sum of nothing: zeros
                       {uniform({2, 3}), uniform({3, 0})},
                       {uniform({0, 2, 3}), uniform({0, 3, 4})},
                       {uniform({0, 2, 3}), uniform({3, 4})},
                       {uniform({3}), uniform({3})},
                       {uniform({2, 4, 3}), uniform({3})},
                       {uniform({3}), uniform({2, 3, 4})},
                       {uniform({4, 5}), uniform({2, 3, 5, 2})},
                       {uniform({2, 3, 4, 5}), uniform({5, 2})}},
           .errors =
               {error<ShapeError>("matmul: inner sizes differ: a is [4, 3], b is [5, 2]",
                                  fails({4, 3}, {5, 2})),
                error<ShapeError>("matmul: shapes [2] and [3]", fails({2, 4, 3}, {3, 3, 5})),
                error<ShapeError>("matmul: an operand is a number, of shape []", fails({2, 3}, {})),
                error<
                    DTypeError>("matmul: dtypes float32 and float64 differ",
                                [] {
                                  matmul(zeros({2, 2}), zeros({2, 2}, {.dtype = DType::Float64}));
                                }),
                error<DTypeError>("matmul: unsupported dtype int64",
                                  [] {
                                    const Tensor x = zeros({2, 2}, {.dtype = DType::Int64});
                                    matmul(x, x);
                                  })},
           .terms = 129});
  specs.push_back({.name = "matmul of repeated batches",
                   .kernels = {"matmul", "sum"},
                   .run = [](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; },
                   .samples = {{uniform({2, 1, 4, 5}), uniform({3, 5, 2})},
                               {uniform({3, 4, 5}), uniform({1, 5, 2})},
                               {uniform({2, 1, 0, 5}), uniform({3, 5, 2})}},
                   .terms = 18});
  specs.push_back({.name = "matmul of transposed",
                   .kernels = {"matmul"},
                   .run =
                       [](const Tensors& in) {
                         return Tensors{matmul(transpose(in[0], -1, -2), transpose(in[1], -1, -2))};
                       },
                   .samples = {{uniform({3, 2}), uniform({4, 3})},
                               {uniform({140, 51}), uniform({33, 140})},
                               {uniform({3, 0}), uniform({4, 3})}},
                   .terms = 4});
  specs.push_back(
      {.name = "matmul of repeated",
       .kernels = {"matmul"},
       .run =
           [](const Tensors& in) {
             return Tensors{matmul(in[0], expand(in[1], {3, in[1].size(1), in[1].size(2)}))};
           },
       .samples = {{uniform({4, 5}), uniform({1, 5, 6})},
                   {uniform({9, 20}), uniform({1, 20, 17})},
                   {uniform({0, 5}), uniform({1, 5, 6})}},
       .terms = 18});
  const auto linear_fails = [](const Shape& x, const Shape& w, const Shape& b) {
    return [=] { linear(zeros(x), zeros(w), zeros(b)); };
  };
  specs.push_back({.name = "linear",
                   .kernels = {"matmul", "sum"},
                   .run =
                       [](const Tensors& in) {
                         return Tensors{linear(in[0], in[1], in.size() > 2 ? in[2] : Tensor())};
                       },
                   .reference =
                       [](const Arrays& in) {
                         const Array& x = in[0];
                         const Array& w = in[1];
                         const int64_t inner = w.size(1);
                         const int64_t outer = w.size(0);
                         const int64_t rows = inner ? x.numel() / inner : x.size(0);
                         Shape shape = x.shape;
                         shape[shape.dim() - 1] = outer;
                         Array y({rows, outer});
                         for (int64_t i = 0; i < rows; ++i)
                           for (int64_t j = 0; j < outer; ++j) {
                             y(i, j) = in.size() > 2 ? in[2](j) : 0;
                             for (int64_t k = 0; k < inner; ++k)
                               y(i, j) += x.values[i * inner + k] * w(j, k);
                           }
                         return Arrays{reshaped(y, shape)};
                       },
                   .samples = {{uniform({2, 3}), uniform({4, 3}), uniform({4})},
                               {uniform({2, 3}), uniform({4, 3})},
                               {uniform({1, 3}), uniform({4, 3}), uniform({4})},
                               {uniform({3}), uniform({4, 3}), uniform({4})},
                               {uniform({2, 5, 3}), uniform({4, 3}), uniform({4})},
                               {uniform({2, 2, 2, 3}), uniform({4, 3}), uniform({4})},
                               {uniform({0, 3}), uniform({4, 3}), uniform({4})},
                               {uniform({2, 0}), uniform({4, 0}), uniform({4})}},  // the bias alone
                   .errors = {error<ShapeError>("linear: the input has shape [2, 5], "
                                                "the weight [4, 3], expected the last size "
                                                "of the input to be 3",
                                                linear_fails({2, 5}, {4, 3}, {4})),
                              error<ShapeError>(
                                  "linear: the bias has shape [3], the weight [4, 3], expected [4]",
                                  linear_fails({2, 3}, {4, 3}, {3})),
                              error<ShapeError>(
                                  "linear: the weight has shape [3] with 1 dimensions, expected 2",
                                  linear_fails({2, 3}, {3}, {3}))},
                   .terms = 16});
  return specs;
}

}  // namespace ringgrad::test
