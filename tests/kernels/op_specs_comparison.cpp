// Rows for comparisons and masks, extremes of two, and the kernels that go along one dimension.
#include <algorithm>
#include <numeric>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

using Run = Tensor (*)(const Tensor& a, const Tensor& b);
using Formula = double (*)(double a, double b);

// Compares whole numbers, so that some are equal, in every dtype.
OpSpec comparison(const std::string& name, const std::string& kernel, Run run, Formula f,
                  std::vector<DType> dtypes) {
  OpSpec spec;
  spec.name = name + (is_floating(dtypes[0]) ? "" : " of integers");
  spec.kernels = {kernel};
  spec.run = [run](const Tensors& in) { return Tensors{run(in[0], in[1])}; };
  spec.reference = [f](const Arrays& in) { return Arrays{map(in[0], in[1], f)}; };
  spec.samples = {{whole({3, 4}, 0, 3), whole({3, 4}, 0, 3)},
                  {whole({2, 3, 2, 2}, 0, 3), whole({3, 1, 1}, 0, 3)},
                  {whole({0}, 0, 1), whole({1}, 0, 1)}};
  if (is_floating(dtypes[0]))
    spec.samples.push_back(
        not_smooth({literal({4}, {NAN, 0, 1, INFINITY}), literal({4}, {1, -0.0, NAN, INFINITY})}));
  spec.errors = {error<DTypeError>("differ, expected equal ones; convert with to(x, dtype)",
                                   [run] { run(zeros({2}), zeros({2}, {.dtype = DType::Int64})); }),
                 error<ShapeError>("cannot be broadcast", [run] { run(zeros({2}), zeros({3})); })};
  spec.dtypes = std::move(dtypes);
  return spec;
}

OpSpec minimum_spec(const std::string& name, std::vector<Sample> samples,
                    std::vector<DType> dtypes) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = {"minimum"};
  if (is_floating(dtypes[0])) spec.kernels.push_back("minimum_backward");
  spec.run = [](const Tensors& in) { return Tensors{minimum(in[0], in[1])}; };
  spec.reference = [](const Arrays& in) {
    return Arrays{
        map(in[0], in[1], [](double a, double b) { return std::isnan(a) || a < b ? a : b; })};
  };
  spec.samples = std::move(samples);
  spec.terms = 16;
  spec.dtypes = std::move(dtypes);
  return spec;
}

OpSpec where_spec() {
  OpSpec spec;
  spec.name = "where";
  spec.kernels = {"where", "less"};
  spec.run = [](const Tensors& in) { return Tensors{where(in[0] > 0, in[1], in[2])}; };
  spec.reference = [](const Arrays& in) {
    const Array a = map(in[0], in[1], [](double c, double a) { return c > 0 ? a : 0; });
    const Array b = map(in[0], in[2], [](double c, double b) { return c > 0 ? 0 : b; });
    return Arrays{map(a, b, [](double a, double b) { return a + b; })};
  };
  const auto c = [](const Shape& shape) { return uniform(shape).without_grad(); };
  spec.samples = {{c({3, 4}), uniform({3, 4}), uniform({3, 4})},
                  {c({4}), uniform({3, 1}), uniform({})},
                  {c({2, 3, 2, 2}), uniform({2, 3, 2, 2}), uniform({3, 1, 1})},
                  {c({0, 2}), uniform({2}), uniform({0, 2})}};
  spec.terms = 16;
  spec.errors = {
      error<DTypeError>("where: the mask has dtype float32, expected bool, as x > 0 gives it",
                        [] { where(zeros({1}), zeros({1}), zeros({1})); }),
      error<DTypeError>("where: dtypes float32 and int64 differ", [] {
        where(zeros({1}) > 0, zeros({1}), zeros({1}, {.dtype = DType::Int64}));
      })};
  return spec;
}

// f(column) replaces each column of x along dim.
Array along(const Array& x, int dim, const std::function<void(std::vector<double>&)>& f) {
  Array rows = around(x, dim);
  for (int64_t o = 0; o < rows.size(0); ++o)
    for (int64_t i = 0; i < rows.size(2); ++i) {
      std::vector<double> column;
      for (int64_t n = 0; n < rows.size(1); ++n) column.push_back(rows(o, n, i));
      f(column);
      for (int64_t n = 0; n < rows.size(1); ++n) rows(o, n, i) = column[n];
    }
  return reshaped(rows, x.shape);
}

OpSpec cumsum_spec(int dim, std::vector<DType> dtypes, Input (*input)(const Shape&)) {
  OpSpec spec;
  spec.name =
      "cumsum along " + std::to_string(dim) + (is_floating(dtypes[0]) ? "" : " of integers");
  spec.kernels = {"cumsum"};
  spec.run = [dim](const Tensors& in) { return Tensors{cumsum(in[0], dim)}; };
  spec.reference = [dim](const Arrays& in) {
    return Arrays{along(in[0], dim, [](auto& column) {
      std::partial_sum(column.begin(), column.end(), column.begin());
    })};
  };
  spec.samples = {{input({5, 3})},
                  {input({2, 3, 4})},
                  {input({2, 3, 2, 2})},
                  {input({2, 0})},
                  {input({70, 80})}};
  spec.terms = 80;
  spec.errors = {error<IndexError>("cumsum: dimension 2 is out of range", [] {
    cumsum(zeros({2, 3}), 2);
  })};
  spec.dtypes = std::move(dtypes);
  return spec;
}

OpSpec sort_spec(int dim, bool descending, std::vector<DType> dtypes) {
  OpSpec spec;
  spec.name = std::string("sort ") + (descending ? "downwards" : "upwards") + " along " +
              std::to_string(dim) + (is_floating(dtypes[0]) ? "" : " of integers");
  spec.kernels = {"argsort", "gather", "scatter_add"};
  spec.run = [=](const Tensors& in) {
    const auto [values, indices] = sort(in[0], dim, descending);
    return Tensors{values, indices};
  };
  const auto order = [=](const std::vector<double>& column) {
    std::vector<int64_t> places(column.size());
    std::iota(places.begin(), places.end(), 0);
    // A NaN is the largest.
    const auto key = [&](int64_t i) { return std::pair(std::isnan(column[i]), column[i]); };
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
      if (std::isnan(column[a]) && std::isnan(column[b])) return false;
      return descending ? key(b) < key(a) : key(a) < key(b);
    });
    return places;
  };
  spec.reference = [=](const Arrays& in) {
    const Array values = along(in[0], dim, [&](auto& column) {
      const auto old = column;
      const auto places = order(column);
      for (size_t i = 0; i < old.size(); ++i) column[i] = old[places[i]];
    });
    const Array indices = along(in[0], dim, [&](auto& column) {
      const auto places = order(column);
      column.assign(places.begin(), places.end());
    });
    return Arrays{values, indices};
  };
  if (is_floating(dtypes[0]))
    spec.samples = {{distinct({5, 3})},
                    {distinct({2, 3, 4})},
                    {distinct({2, 3, 2, 2})},
                    {uniform({3, 0})},
                    not_smooth({uniform({3, 300})}),  // with ties in 16 bits
                    not_smooth({uniform({300, 3})}),
                    not_smooth({literal({3, 3}, {1, NAN, 1, -INFINITY, 1, NAN, 0, INFINITY, 1})})};
  else
    spec.samples = {{whole({20, 3}, 0, 6)},
                    {whole({3, 300}, 0, 90)},
                    {whole({300, 3}, 0, 90)},
                    {whole({0, 3}, 0, 6)}};
  spec.dtypes = std::move(dtypes);
  return spec;
}

Input small(const Shape& shape) { return whole(shape, 0, 3); }

}  // namespace

std::vector<OpSpec> comparison_specs() {
  std::vector<OpSpec> specs;
  for (const auto& dtypes : {kFloatingDTypes, kIntegerDTypes}) {
    const auto add = [&](const std::string& name, const std::string& kernel, Run run, Formula f) {
      specs.push_back(comparison(name, kernel, run, f, dtypes));
    };
    add(
        "eq", "equal", [](auto& a, auto& b) -> Tensor { return a == b; },
        [](double a, double b) -> double { return a == b; });
    add(
        "ne", "equal", [](auto& a, auto& b) -> Tensor { return a != b; },
        [](double a, double b) -> double { return a != b; });
    add(
        "lt", "less", [](auto& a, auto& b) -> Tensor { return a < b; },
        [](double a, double b) -> double { return a < b; });
    add(
        "gt", "less", [](auto& a, auto& b) -> Tensor { return a > b; },
        [](double a, double b) -> double { return a > b; });
    add(
        "le", "less_equal", [](auto& a, auto& b) -> Tensor { return a <= b; },
        [](double a, double b) -> double { return a <= b; });
    add(
        "ge", "less_equal", [](auto& a, auto& b) -> Tensor { return a >= b; },
        [](double a, double b) -> double { return a >= b; });
    add(
        "a < b or not a = 1", "less_equal",
        [](auto& a, auto& b) -> Tensor { return (a < b) | ~(a == 1); },
        [](double a, double b) -> double { return a < b || !(a == 1); });
    add(
        "a < b and not a = 1", "less",
        [](auto& a, auto& b) -> Tensor { return (a < b) & ~(a == 1); },
        [](double a, double b) -> double { return a < b && !(a == 1); });
  }
  specs.push_back(minimum_spec("minimum",
                               {{uniform({2, 3}), uniform({3})},
                                {uniform({2, 3, 2, 2}), uniform({2, 3, 2, 2})},
                                {uniform({2, 0}), uniform({2, 1})}},
                               kFloatingDTypes));
  specs.push_back(minimum_spec("minimum of NaN and ties",
                               {not_smooth({literal({5}, {NAN, 1, 2, -INFINITY, 3}),
                                            literal({5}, {1, NAN, 2, -INFINITY, INFINITY})})},
                               kFloatingDTypes));
  specs.back().never_empty = "the row above has empty samples";
  specs.push_back(
      minimum_spec("minimum of integers",
                   {{whole({4, 5}, 0, 9), whole({5}, 0, 9)}, {whole({0}, 0, 1), whole({1}, 0, 1)}},
                   kIntegerDTypes));
  specs.push_back(where_spec());
  for (int dim : {0, 1}) {
    specs.push_back(cumsum_spec(dim, kFloatingDTypes, any));
    specs.push_back(sort_spec(dim, false, kFloatingDTypes));
    specs.push_back(sort_spec(dim, true, kFloatingDTypes));
  }
  specs.push_back(cumsum_spec(0, kIntegerDTypes, small));
  specs.push_back(sort_spec(0, true, kIntegerDTypes));
  return specs;
}

}  // namespace ringgrad::test
