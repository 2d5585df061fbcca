// Rows for picking elements by index.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

// y[o, j, i] = x[o, index(o, j, i), i]
template <class Index>
Array picked(const Array& x, int dim, const Shape& shape, Index index) {
  Array y(shape);
  const Array from = around(x, dim);
  const Array to = around(y, dim);
  for (int64_t o = 0; o < to.size(0); ++o)
    for (int64_t j = 0; j < to.size(1); ++j)
      for (int64_t i = 0; i < to.size(2); ++i)
        y.values[to.offset({o, j, i})] = from(o, static_cast<int64_t>(index(o, j, i)), i);
  return y;
}

OpSpec index_select_spec(int dim, std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = "index_select along " + std::to_string(dim);
  spec.kernels = {"index_select", "index_add", "fill"};
  spec.run = [dim](const Tensors& in) { return Tensors{index_select(in[0], dim, in[1])}; };
  spec.reference = [dim](const Arrays& in) {
    const int d = dim < 0 ? dim + in[0].shape.dim() : dim;
    Shape shape = in[0].shape;
    shape[d] = in[1].numel();
    return Arrays{picked(in[0], d, shape, [&](int64_t, int64_t j, int64_t) { return in[1](j); })};
  };
  spec.samples = std::move(samples);
  spec.terms = 4;
  return spec;
}

OpSpec gather_spec(int dim, std::vector<Sample> samples) {
  OpSpec spec;
  spec.name = "gather along " + std::to_string(dim);
  spec.kernels = {"gather", "scatter_add", "fill"};
  spec.run = [dim](const Tensors& in) { return Tensors{gather(in[0], dim, in[1])}; };
  spec.reference = [dim](const Arrays& in) {
    const int d = dim < 0 ? dim + in[0].shape.dim() : dim;
    const Array index = around(in[1], d);
    return Arrays{picked(in[0], d, in[1].shape,
                         [&](int64_t o, int64_t j, int64_t i) { return index(o, j, i); })};
  };
  spec.samples = std::move(samples);
  spec.terms = 4;
  return spec;
}

OpSpec one_hot_spec(DType dtype) {
  OpSpec spec;
  spec.name = std::string("one_hot in ") + ringgrad::name(dtype);
  spec.kernels = {"scatter_add", "fill"};
  spec.run = [dtype](const Tensors& in) { return Tensors{one_hot(in[0], 5, dtype)}; };
  spec.reference = [](const Arrays& in) {
    Shape shape = in[0].shape;
    shape.push_back(5);
    Array y(shape);
    for (int64_t i = 0; i < in[0].numel(); ++i)
      y.values[i * 5 + static_cast<int64_t>(in[0].values[i])] = 1;
    return Arrays{y};
  };
  spec.samples = {{integers({4}, 0, 5)},
                  {integers({2, 3}, 0, 5)},
                  {integers({}, 0, 5)},
                  {integers({0, 2}, 0, 5)}};
  spec.dtypes = {DType::Float32};
  return spec;
}

OpSpec on_integers(OpSpec spec) {
  spec.name += " of integers";
  for (Sample& sample : spec.samples) sample.inputs[0] = whole(sample.inputs[0].shape, 0, 20);
  spec.dtypes = kIntegerDTypes;
  return spec;
}

}  // namespace

std::vector<OpSpec> indexing_specs() {
  std::vector<OpSpec> specs = {
      index_select_spec(0, {{uniform({4, 3}), labels({2, 0, 2, 2})},
                            {uniform({4}), labels({3})},
                            {uniform({4, 3, 2, 2}), labels({0, 3})},
                            {uniform({4, 3}), labels({})},
                            {uniform({4, 0}), labels({1})}}),
      index_select_spec(1, {{uniform({2, 4}), labels({3, 3})},
                            {uniform({2, 4, 3}), labels({0, 1})},
                            {uniform({2, 3, 130}), labels({2, 0, 2})},
                            {uniform({0, 4}), labels({1})}}),
      index_select_spec(-1,
                        {{uniform({2, 3, 4}), labels({3, 0, 3})}, {uniform({2, 4}), labels({})}}),
      gather_spec(0, {{uniform({4, 3}), integers({2, 3}, 0, 4)},
                      {uniform({4, 2, 2, 2}), integers({6, 2, 2, 2}, 0, 4)},
                      {uniform({4, 3}), integers({0, 3}, 0, 4)}}),
      gather_spec(-1, {{uniform({3, 4}), integers({3, 6}, 0, 4)},
                       {uniform({5}), integers({3}, 0, 5)},
                       {uniform({3, 9000}), integers({3, 3001}, 0, 9000)},
                       {uniform({0, 3}), integers({0, 1}, 0, 3)}}),
      gather_spec(1, {{uniform({2, 4, 3}), integers({2, 1, 3}, 0, 4)},
                      {uniform({2, 3, 130}), integers({2, 4, 130}, 0, 3)},
                      {uniform({2, 200, 130}), integers({2, 70, 130}, 0, 200)},
                      {uniform({2, 4, 0}), integers({2, 1, 0}, 0, 4)}}),
      one_hot_spec(DType::Float32),
      one_hot_spec(DType::Int64),
      one_hot_spec(DType::Bool),
      one_hot_spec(DType::BFloat16),
  };
  specs.push_back(on_integers(specs[1]));
  specs.push_back(on_integers(specs[3]));
  const auto index = [](std::vector<int64_t> values) { return tensor(values); };
  specs[0].errors = {
      error<IndexError>("index_select: element 1 of the index is 4, expected 0 to 3",
                        [=] {
                          index_select(zeros({4, 2}), 0, index({0, 4}));
                        }),
      error<IndexError>("index_select: element 0 of the index is -1, expected 0 to 3",
                        [=] {
                          index_select(zeros({4, 2}), 0, index({-1}));
                        }),
      error<IndexError>("index_select: dimension 2 is out of range",
                        [=] {
                          index_select(zeros({4, 2}), 2, index({0}));
                        }),
      error<ShapeError>("index_select: the index has shape [1, 1]",
                        [] {
                          index_select(zeros({4}), 0, zeros({1, 1}, {.dtype = DType::Int64}));
                        }),
      error<DTypeError>("index_select: the index has dtype float32, expected int64; "
                        "convert with to(index, DType::Int64)",
                        [] { index_select(zeros({4}), 0, zeros({1})); })};
  specs[3].errors = {
      error<IndexError>("gather: element 0 of the index is 4, expected 0 to 3",
                        [=] { gather(zeros({4}), 0, index({4})); }),
      error<ShapeError>("gather: the tensor has shape [4, 2], the index [1, 3], "
                        "expected equal sizes in all dimensions but 0",
                        [] {
                          gather(zeros({4, 2}), 0, zeros({1, 3}, {.dtype = DType::Int64}));
                        }),
      error<DTypeError>("gather: the index has dtype int32",
                        [] { gather(zeros({4}), 0, zeros({1}, {.dtype = DType::Int32})); })};
  specs[6].errors = {
      error<IndexError>("one_hot: element 1 of the index is 3, expected 0 to 2",
                        [=] {
                          one_hot(index({0, 3}), 3);
                        }),
      error<Error>("one_hot: the number of classes is 0, expected at least 1",
                   [=] { one_hot(index({}), 0); }),
      error<DTypeError>("one_hot: the index has dtype float32", [] { one_hot(zeros({2}), 3); })};
  return specs;
}

}  // namespace ringgrad::test
