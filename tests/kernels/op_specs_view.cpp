// Rows for the operations that show, join or convert the same elements.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

OpSpec view(const std::string& name, std::function<Tensor(const Tensor&)> run,
            std::function<Array(const Array&)> reference, std::vector<Shape> shapes,
            std::vector<ErrorCase> errors = {}) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"copy"};
  spec.run = [run](const Tensors& in) { return Tensors{run(in[0])}; };
  spec.reference = [reference](const Arrays& in) { return Arrays{reference(in[0])}; };
  for (const Shape& shape : shapes) spec.samples.push_back({uniform(shape)});
  spec.errors = std::move(errors);
  spec.terms = 16;  // expand's gradient is a sum
  return spec;
}

// y[index] = x[source(index)]
Array picked(const Array& x, const Shape& shape, const std::function<Shape(const Shape&)>& source) {
  Array y(shape);
  for (int64_t i = 0; i < y.numel(); ++i) y.values[i] = x.values[x.offset(source(y.index(i)))];
  return y;
}

Array permuted(const Array& x, const std::vector<int>& order) {
  Shape shape = x.shape;
  for (size_t i = 0; i < order.size(); ++i) shape[i] = x.shape[order[i]];
  return picked(x, shape, [&](const Shape& to) {
    Shape from = to;
    for (size_t i = 0; i < order.size(); ++i) from[order[i]] = to[i];
    return from;
  });
}

Array sliced(const Array& x, int d, int64_t begin, int64_t length, int64_t step) {
  Shape shape = x.shape;
  shape[d] = length;
  return picked(x, shape, [&](Shape index) {
    index[d] = begin + index[d] * step;
    return index;
  });
}

std::vector<OpSpec> shape_specs() {
  return {
      view(
          "reshape",
          [](const Tensor& x) {
            return reshape(x, {-1, x.size(0)});
          },
          [](const Array& x) {
            return reshaped(x, {x.numel() / x.size(0), x.size(0)});
          },
          {{2, 6}, {4, 3, 2}, {2, 3, 4, 5}, {2, 0, 3}},
          {error<ShapeError>("reshape: a tensor of shape [2, 3] has 6 elements, shape [4, 2] has 8",
                             [] {
                               reshape(zeros({2, 3}), {4, 2});
                             }),
           error<ShapeError>("reshape: a tensor of shape [2, 3] has 6 elements, "
                             "which leaves no size for the -1 in [4, -1]",
                             [] {
                               reshape(zeros({2, 3}), {4, -1});
                             }),
           error<ShapeError>("reshape: shape [-1, -1] has negative sizes",
                             [] {
                               reshape(zeros({4}), {-1, -1});
                             }),
           error<ShapeError>("reshape: shape [-2, -2] has negative sizes",
                             [] {
                               reshape(zeros({4}), {-2, -2});
                             }),
           error<ShapeError>("which leaves no size for the -1 in [0, -1]",
                             [] {
                               reshape(zeros({0}), {0, -1});
                             }),
           error<ShapeError>("has too many elements",  // 2^66, which is 4 when it wraps around
                             [] {
                               reshape(zeros({4}), {int64_t{1} << 33, int64_t{1} << 33});
                             })}),
      view(
          "flatten", [](const Tensor& x) { return flatten(x, 1); },
          [](const Array& x) {
            return reshaped(x, {x.size(0), x.numel() / x.size(0)});
          },
          {{2, 3}, {2, 3, 4}, {2, 3, 4, 5}, {3, 0, 2}},
          {error<ShapeError>("flatten: dimensions 2 to 1 of shape [2, 3, 4] are in the wrong order",
                             [] {
                               flatten(zeros({2, 3, 4}), 2, 1);
                             }),
           error<IndexError>("flatten: dimension 5 is out of range",
                             [] {
                               flatten(zeros({2, 3}), 5);
                             })}),
      view(
          "transpose", [](const Tensor& x) { return transpose(x, 0, -1); },
          [](const Array& x) {
            std::vector<int> order(x.shape.dim());
            for (int d = 0; d < x.shape.dim(); ++d) order[d] = d;
            std::swap(order.front(), order.back());
            return permuted(x, order);
          },
          {{2, 3}, {4}, {2, 3, 4, 5}, {2, 0}},
          {error<IndexError>("transpose: dimension 2 is out of range for a tensor of 2 "
                             "dimensions, expected -2 to 1",
                             [] {
                               transpose(zeros({2, 3}), 0, 2);
                             })}),
      view(
          "permute",
          [](const Tensor& x) {
            return permute(x, {2, 0, 1});
          },
          [](const Array& x) {
            return permuted(x, {2, 0, 1});
          },
          {{2, 3, 4}, {2, 0, 4}},
          {error<ShapeError>(
               "permute: the order has 2 entries, expected one for each of the 3 dimensions",
               [] {
                 permute(zeros({2, 3, 4}), {0, 1});
               }),
           error<ShapeError>("permute: dimension 1 appears twice",
                             [] {
                               permute(zeros({2, 3}), {1, -1});
                             })}),
      view(
          "slice", [](const Tensor& x) { return slice(x, 1, 1, 5, 2); },
          [](const Array& x) { return sliced(x, 1, 1, std::max<int64_t>(0, x.size(1) / 2), 2); },
          {{2, 4}, {3, 5, 2}, {2, 4, 3, 3}, {0, 4}, {2, 1}},
          {error<IndexError>("slice: dimension 1 is out of range", [] { slice(zeros({2}), 1, 0); }),
           error<Error>("slice: the step is 0, expected at least 1",
                        [] { slice(zeros({2}), 0, 0, 2, 0); })}),
      view(
          "slice from the end", [](const Tensor& x) { return slice(x, -2, -3, -1); },
          [](const Array& x) {
            return sliced(x, x.shape.dim() - 2, x.size(x.shape.dim() - 2) - 3, 2, 1);
          },
          {{4, 3}, {2, 3, 5}, {4, 0}}),
      view(
          "slice past the end", [](const Tensor& x) { return slice(x, 0, 1, 100, INT64_MAX); },
          [](const Array& x) { return sliced(x, 0, 1, 1, 1); }, {{4, 3}, {2, 0}}),
      view(
          "expand",
          [](const Tensor& x) {
            return expand(x, {2, -1, 4, 3});
          },
          [](const Array& x) {
            return picked(x, {2, x.size(0), 4, 3}, [&](const Shape& to) {
              return Shape{to[1], 0, to[3]};
            });
          },
          {{5, 1, 3}, {0, 1, 3}},
          {error<ShapeError>("expand: a tensor of shape [2, 3] cannot be repeated to [2, 4]",
                             [] {
                               expand(zeros({2, 3}), {2, 4});
                             }),
           error<ShapeError>("cannot be repeated to [-1, 2, 3]",
                             [] {
                               expand(zeros({2, 3}), {-1, 2, 3});
                             }),
           error<ShapeError>("expand: shape [3] has fewer dimensions than the tensor's [2, 3]",
                             [] {
                               expand(zeros({2, 3}), {3});
                             }),
           error<ShapeError>("expand: shape [4294967296, 4294967296] has too many elements",
                             [] {
                               expand(zeros({1}), {int64_t{1} << 32, int64_t{1} << 32});
                             })}),
      view(
          "squeeze", [](const Tensor& x) { return squeeze(x, -2); },
          [](const Array& x) {
            return reshaped(x, {x.size(0), x.size(2)});
          },
          {{2, 1, 3}, {0, 1, 2}},
          {error<ShapeError>("squeeze: dimension 1 of shape [2, 3] has size 3, expected 1",
                             [] {
                               squeeze(zeros({2, 3}), 1);
                             })}),
      view(
          "unsqueeze", [](const Tensor& x) { return unsqueeze(x, -1); },
          [](const Array& x) {
            Shape shape = x.shape;
            shape.push_back(1);
            return reshaped(x, shape);
          },
          {{2, 3}, {}, {2, 3, 2, 2}, {0, 2}},
          {error<IndexError>("unsqueeze: dimension 4 is out of range for a tensor of 3 dimensions",
                             [] {
                               unsqueeze(zeros({2, 3}), 4);
                             }),
           error<ShapeError>("more than 8 dimensions",
                             [] {
                               unsqueeze(zeros({1, 1, 1, 1, 1, 1, 1, 1}), 0);
                             })}),
      view("contiguous", contiguous, [](const Array& x) { return x; },
           {{2, 3}, {2, 3, 4, 5}, {37, 2, 35}, {0, 3}}),
      view(
          "to channel-blocked",
          [](const Tensor& x) { return to_layout(x, Layout::ChannelBlocked); },
          [](const Array& x) { return x; }, {{2, 3, 4, 5}, {1, 17, 2, 2}, {0, 3, 2, 2}},
          {error<ShapeError>("the channel-blocked layout needs 4 dimensions",
                             [] {
                               to_layout(zeros({2, 3}), Layout::ChannelBlocked);
                             })}),
      view(
          "to channels-last", [](const Tensor& x) { return to_layout(x, Layout::ChannelsLast); },
          [](const Array& x) { return x; },
          {{2, 3, 4, 5}, {1, 17, 1, 1}, {2, 1, 3, 2}, {0, 3, 2, 2}},
          {error<ShapeError>("the channels-last layout needs 4 dimensions",
                             [] {
                               to_layout(zeros({2, 3}), Layout::ChannelsLast);
                             })}),
      view(
          "to strided", [](const Tensor& x) { return to_layout(x, Layout::Strided); },
          [](const Array& x) { return x; }, {{2, 17, 4, 5}, {0, 3, 2, 2}}),
      view(
          "to float32 and back",
          [](const Tensor& x) { return to(to(x, DType::Float32), x.dtype()); },
          [](const Array& x) { return map(x, [](double v) { return static_cast<float>(v); }); },
          {{2, 3}, {2, 3, 4, 5}, {0}}),
  };
}

}  // namespace

std::vector<OpSpec> view_specs() {
  std::vector<OpSpec> specs = shape_specs();
  // float64 would lose digits.
  specs.back().dtypes = {DType::Float32, DType::BFloat16, DType::Float16};

  specs.push_back(
      {.name = "cat",
       .kernels = {"copy"},
       .run = [](const Tensors& in) { return Tensors{cat(in, -1)}; },
       .reference =
           [](const Arrays& in) {
             Shape shape = in[0].shape;
             const int d = shape.dim() - 1;
             shape[d] = 0;
             for (const Array& x : in) shape[d] += x.size(d);
             Array y(shape);
             int64_t begin = 0;
             for (const Array& x : in) {
               for (int64_t i = 0; i < x.numel(); ++i) {
                 Shape to = x.index(i);
                 to[d] += begin;
                 y.values[y.offset(to)] = x.values[i];
               }
               begin += x.size(d);
             }
             return Arrays{y};
           },
       .samples = {{uniform({2, 3}), uniform({2, 1}), uniform({2, 4})},
                   {uniform({5})},
                   {uniform({2, 3, 2, 2}), uniform({2, 3, 2, 3})},
                   {uniform({2, 0}), uniform({2, 3})},
                   {uniform({0, 2}), uniform({0, 1})}},
       .errors = {error<Error>("cat: the list of tensors is empty", [] { cat({}); }),
                  error<ShapeError>("cat: shapes [2, 3] and [3, 3] differ outside dimension 1",
                                    [] {
                                      cat({zeros({2, 3}), zeros({3, 3})}, 1);
                                    }),
                  error<ShapeError>("cat: shapes [2, 3] and [2] differ",
                                    [] {
                                      cat({zeros({2, 3}), zeros({2})}, 1);
                                    }),
                  error<DTypeError>("cat: dtypes float32 and int64 differ",
                                    [] {
                                      cat({zeros({2}), zeros({2}, {.dtype = DType::Int64})});
                                    }),
                  error<IndexError>("cat: dimension 1 is out of range",
                                    [] { cat({zeros({2})}, 1); })}});
  specs.push_back(
      {.name = "stack",
       .kernels = {"copy"},
       .run = [](const Tensors& in) { return Tensors{stack(in, 1)}; },
       .reference =
           [](const Arrays& in) {
             const int64_t rows = in[0].size(0);
             const int64_t each = rows ? in[0].numel() / rows : 0;
             Shape shape = in[0].shape;
             shape.insert(1, static_cast<int64_t>(in.size()));
             Array y(shape);
             for (int64_t row = 0; row < rows; ++row)
               for (size_t k = 0; k < in.size(); ++k)
                 for (int64_t i = 0; i < each; ++i)
                   y.values[(row * in.size() + k) * each + i] = in[k].values[row * each + i];
             return Arrays{y};
           },
       .samples = {{uniform({2, 3}), uniform({2, 3})},
                   {uniform({4})},
                   {uniform({0, 2}), uniform({0, 2})}},
       .errors = {error<Error>("stack: the list of tensors is empty", [] { stack({}); }),
                  error<ShapeError>("stack: shapes [2] and [3] differ, expected equal ones", [] {
                    stack({zeros({2}), zeros({3})});
                  })}});
  specs.push_back(
      {.name = "pad",
       .kernels = {"copy", "fill"},
       .run =
           [](const Tensors& in) {
             return Tensors{pad(in[0], {1, 2, 0, 3}, -0.5)};
           },
       .reference =
           [](const Arrays& in) {
             const Array& x = in[0];
             Shape shape = x.shape;
             const int d = shape.dim() - 2;
             shape[d] += 3;
             shape[d + 1] += 3;
             Array y(shape, -0.5);
             for (int64_t i = 0; i < x.numel(); ++i) {
               Shape to = x.index(i);
               to[d + 1] += 1;
               y.values[y.offset(to)] = x.values[i];
             }
             return Arrays{y};
           },
       .samples = {{uniform({2, 3})}, {uniform({2, 3, 2, 2})}, {uniform({1, 0, 2})}},
       .errors = {error<ShapeError>("pad: 3 widths for shape [2, 3]",
                                    [] {
                                      pad(zeros({2, 3}), {1, 1, 1});
                                    }),
                  error<ShapeError>("pad: 4 widths for shape [2]",
                                    [] {
                                      pad(zeros({2}), {1, 1, 1, 1});
                                    }),
                  error<ShapeError>(
                      "pad: shape [2, 1000] with 9223372036854775308 elements before and ",
                      [] {
                        pad(zeros({2, 1000}), {INT64_MAX - 499, INT64_MAX - 499});
                      }),
                  error<ShapeError>(
                      "pad: shape [2] with -3 elements before and 0 behind in dimension 0", [] {
                        pad(zeros({2}), {-3, 0});
                      })}});
  specs.push_back({.name = "pad with widths that remove",
                   .kernels = {"fill", "copy"},
                   .run =
                       [](const Tensors& in) {
                         return Tensors{pad(in[0], {-1, 2, 1, -2}, 3)};
                       },
                   .reference =
                       [](const Arrays& in) {
                         Shape shape = in[0].shape;
                         const int d = shape.dim() - 1;
                         shape[d] += 1;
                         shape[d - 1] -= 1;
                         Array y(shape, 3);
                         for (int64_t i = 0; i < y.numel(); ++i) {
                           Shape at = y.index(i);
                           at[d] += 1;
                           at[d - 1] -= 1;
                           const bool inside = at[d] < in[0].size(d) && at[d - 1] >= 0;
                           if (inside) y.values[i] = in[0].values[in[0].offset(at)];
                         }
                         return Arrays{y};
                       },
                   .samples = {{uniform({4, 5})},
                               {uniform({2, 3, 4, 5})},
                               {uniform({2, 2})},
                               {uniform({0, 2, 2})}}});
  // Conversions to integers truncate and have no gradient.
  specs.push_back(
      {.name = "to int64",
       .kernels = {"copy"},
       .run = [](const Tensors& in) { return Tensors{to(in[0], DType::Int64)}; },
       .reference =
           [](const Arrays& in) {
             return Arrays{map(in[0], [](double v) { return std::trunc(v); })};
           },
       .samples = {{uniform({4, 5}, -50, 50)}, {uniform({2, 3, 2, 2})}, {uniform({0})}}});
  return specs;
}

}  // namespace ringgrad::test
