// Rows for matrix products, and for the layers of recurrent networks, which are made of them.
#include <array>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/recurrent_ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
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

}  // namespace

std::vector<OpSpec> matmul_specs() {
  std::vector<OpSpec> specs = recurrent_specs();
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
