// Rows for sums, extremes and softmax.
#include <cmath>
#include <map>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

std::vector<int> all_dims(const Array& x) {
  std::vector<int> dims(x.shape.dim());
  for (int d = 0; d < x.shape.dim(); ++d) dims[d] = d;
  return dims;
}

// For each element of the result (dims kept with size 1): f(the elements that meet there).
Array reduced(const Array& x, std::vector<int> dims, bool keepdim,
              double (*f)(const std::vector<double>&)) {
  Shape kept = x.shape;
  Shape dropped;
  for (int& d : dims) kept[d = d < 0 ? d + x.shape.dim() : d] = 1;
  std::vector<std::vector<double>> groups(kept.numel());
  const Array index(kept);
  for (int64_t i = 0; i < x.numel(); ++i) {
    Shape at = x.index(i);
    for (int d : dims) at[d] = 0;
    groups[index.offset(at)].push_back(x.values[i]);
  }
  for (int d = 0; d < kept.dim(); ++d)
    if (keepdim || std::find(dims.begin(), dims.end(), d) == dims.end()) dropped.push_back(kept[d]);
  Array y(dropped);
  for (int64_t i = 0; i < y.numel(); ++i) y.values[i] = f(groups[i]);
  return y;
}

double sum_of(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += x;
  return sum;
}
double mean_of(const std::vector<double>& v) { return sum_of(v) / static_cast<double>(v.size()); }
double var_of(const std::vector<double>& v) {
  double sum = 0;
  for (double x : v) sum += (x - mean_of(v)) * (x - mean_of(v));
  return sum / std::max(0.0, static_cast<double>(v.size()) - 1);
}
double biased_var_of(const std::vector<double>& v) {
  return var_of(v) * (static_cast<double>(v.size()) - 1) / static_cast<double>(v.size());
}
int64_t first_extreme(const std::vector<double>& v, bool largest) {
  size_t best = 0;
  for (size_t i = 1; i < v.size(); ++i) {
    if (std::isnan(v[best])) break;
    if (std::isnan(v[i]) || (largest ? v[i] > v[best] : v[i] < v[best])) best = i;
  }
  return static_cast<int64_t>(best);
}
double max_of(const std::vector<double>& v) { return v[first_extreme(v, true)]; }
double min_of(const std::vector<double>& v) { return v[first_extreme(v, false)]; }
double argmax_of(const std::vector<double>& v) {
  return static_cast<double>(first_extreme(v, true));
}
double argmin_of(const std::vector<double>& v) {
  return static_cast<double>(first_extreme(v, false));
}

OpSpec reduction(const std::string& name, std::vector<std::string> kernels,
                 std::function<Tensor(const Tensor&)> run,
                 std::function<Array(const Array&)> reference, std::vector<Sample> samples,
                 std::vector<ErrorCase> errors = {}) {
  OpSpec spec;
  spec.name = name;
  spec.kernels = std::move(kernels);
  spec.run = [run](const Tensors& in) { return Tensors{run(in[0])}; };
  spec.reference = [reference](const Arrays& in) { return Arrays{reference(in[0])}; };
  spec.samples = std::move(samples);
  spec.errors = std::move(errors);
  spec.terms = 128;
  return spec;
}

OpSpec extreme(const std::string& name, ValuesAndIndices (*run)(const Tensor&, Int, Flag), int dim,
               bool keepdim) {
  const bool largest = name == "max";
  OpSpec spec;
  spec.name = name + " along " + std::to_string(dim);
  spec.kernels = {name, "scatter_add", "fill"};
  spec.run = [=](const Tensors& in) {
    const auto [values, indices] = run(in[0], dim, keepdim);
    return Tensors{values, indices};
  };
  spec.reference = [=](const Arrays& in) {
    return Arrays{reduced(in[0], {dim}, keepdim, largest ? max_of : min_of),
                  reduced(in[0], {dim}, keepdim, largest ? argmax_of : argmin_of)};
  };
  spec.samples = {
      {distinct({2, 3})},
      {distinct({4, 3, 5})},
      {distinct({2, 3, 4, 5})},
      {uniform({3, 0, 2}).without_grad()},
      not_smooth({literal({2, 3}, {1, 1, 0, NAN, 2, NAN})}),  // ties go to the first, a NaN wins
      not_smooth({literal({2, 2}, {-INFINITY, -INFINITY, INFINITY, INFINITY})}),
      not_smooth({uniform({12, 1500})}),  // with ties in 16 bits
      not_smooth({uniform({1500, 12})})};
  spec.errors = {error<IndexError>(name + ": dimension 1 of shape [2, 0] is empty",
                                   [run] {
                                     run(zeros({2, 0}), 1, false);
                                   }),
                 error<IndexError>(name + ": dimension 2 is out of range",
                                   [run] {
                                     run(zeros({2, 3}), 2, false);
                                   }),
                 error<DTypeError>(name + ": unsupported dtype bool",
                                   [run] { run(zeros({2}, {.dtype = DType::Bool}), 0, false); })};
  return spec;
}

std::vector<OpSpec> sum_specs() {
  return {
      reduction(
          "sum", {"sum"}, [](const Tensor& x) { return sum(x); },
          [](const Array& x) { return reduced(x, all_dims(x), false, sum_of); },
          {{uniform({3, 5})},
           {uniform({})},
           {uniform({2, 3, 4, 5})},
           {uniform({0, 3})},
           {uniform({100003})}},
          {error<IndexError>("sum: dimension 2 is out of range",
                             [] {
                               sum(zeros({2, 3}), {2});
                             }),
           error<ShapeError>("sum: dimension 1 appears twice",
                             [] {
                               sum(zeros({2, 3}), {1, -1});
                             }),
           error<Error>("sum: an argument is an undefined tensor", [] { sum(Tensor()); })}),
      reduction(
          "sum of rows", {"sum"}, [](const Tensor& x) { return sum(x, {-1}); },
          [](const Array& x) { return reduced(x, {-1}, false, sum_of); },
          {{uniform({3, 5})}, {uniform({3, 0})}, {uniform({3, 100})}, {uniform({3, 9000})}}),
      reduction(
          "sum of columns", {"sum"}, [](const Tensor& x) { return sum(x, {0}, true); },
          [](const Array& x) { return reduced(x, {0}, true, sum_of); },
          {{uniform({3, 5})},
           {uniform({0, 3})},
           {uniform({100, 3})},
           {uniform({2000, 3})},
           {uniform({40, 500})}}),
      reduction(
          "sum of all but channels", {"sum"},
          [](const Tensor& x) {
            return sum(x, {0, 2, 3});
          },
          [](const Array& x) {
            return reduced(x, {0, 2, 3}, false, sum_of);
          },
          {{uniform({2, 3, 4, 5})}, {uniform({0, 3, 2, 2})}, {uniform({9, 6, 17, 17})}}),
      reduction(
          "mean", {"sum"},
          [](const Tensor& x) {
            return mean(x, {1, -1}, true);
          },
          [](const Array& x) {
            return reduced(x, {1, -1}, true, mean_of);
          },
          {{uniform({3, 5, 2})}, {uniform({2, 3, 4, 5})}, not_smooth({uniform({2, 0, 3})})},
          {error<DTypeError>("mean: unsupported dtype int64, expected a floating dtype",
                             [] { mean(zeros({2}, {.dtype = DType::Int64})); })}),
      reduction(
          "var", {"sum", "squared_deviations"},
          [](const Tensor& x) {
            return var(x, {0, -1});
          },
          [](const Array& x) {
            return reduced(x, {0, -1}, false, var_of);
          },
          {{uniform({3, 5})},
           {uniform({2, 3, 4})},
           not_smooth({uniform({1, 2, 1})}),
           not_smooth({uniform({0, 3, 2})})},
          {error<DTypeError>("var: unsupported dtype int64, expected a floating dtype",
                             [] { var(zeros({2}, {.dtype = DType::Int64})); })}),
      reduction(
          "biased var", {"sum", "squared_deviations"},
          [](const Tensor& x) { return var(x, {}, 0, true); },
          [](const Array& x) { return reduced(x, all_dims(x), true, biased_var_of); },
          {{uniform({3, 5}, 0, 1)}, {uniform({2, 3, 2, 2})}, not_smooth({uniform({0})})}),
  };
}

// [.., C, ..] along `dim`, by the definition; shifted by the maximum, as e^1000 is no double.
Array softmax_of(const Array& x, int dim, bool logarithm) {
  const Array rows = around(x, dim);
  Array y = rows;
  for (int64_t o = 0; o < rows.size(0); ++o)
    for (int64_t i = 0; i < rows.size(2); ++i) {
      double most = -INFINITY;
      double sum = 0;
      for (int64_t n = 0; n < rows.size(1); ++n) most = std::max(most, rows(o, n, i));
      for (int64_t n = 0; n < rows.size(1); ++n) sum += std::exp(rows(o, n, i) - most);
      for (int64_t n = 0; n < rows.size(1); ++n)
        y(o, n, i) =
            logarithm ? rows(o, n, i) - most - std::log(sum) : std::exp(rows(o, n, i) - most) / sum;
    }
  return reshaped(y, x.shape);
}

OpSpec softmax_spec(const std::string& name, Tensor (*run)(const Tensor&, Int), int dim) {
  const bool logarithm = name == "log_softmax";
  OpSpec spec = reduction(
      name + " along " + std::to_string(dim), {name, name + "_backward"},
      [=](const Tensor& x) { return run(x, dim); },
      [=](const Array& x) { return softmax_of(x, dim < 0 ? dim + x.shape.dim() : dim, logarithm); },
      {{uniform({3, 5})},
       {uniform({2, 3, 4})},
       {uniform({2, 3, 4, 5})},
       {uniform({4, 1})},
       {uniform({2, 40}, -8, 8)},
       {uniform({0, 3})},
       {uniform({5, 1500}, -8, 8)},
       {literal({2, 3}, {1000, 0, -1000, 1e4, 1e4, 1e4})},
       not_smooth({literal({2, 2}, {1, NAN, INFINITY, 0})})},
      {error<DTypeError>(name + ": unsupported dtype int64",
                         [run] { run(zeros({2}, {.dtype = DType::Int64}), 0); }),
       error<IndexError>(name + ": dimension 2 is out of range for a tensor of 2 dimensions",
                         [run] {
                           run(zeros({2, 3}), 2);
                         })});
  spec.terms = 40;
  return spec;
}

// 11, or 2 + the first position of what is not finite where that is less.
OpSpec first_not_finite() {
  OpSpec spec = reduction(
      "find_not_finite", {"find_not_finite"},
      [](const Tensor& x) {
        const Tensor record = full({}, 11, {.dtype = DType::Int64, .device = x.device()});
        kernels::find_not_finite(record, x, 2);
        return record;
      },
      [](const Array& x) {
        const auto bad = std::find_if(x.values.begin(), x.values.end(),
                                      [](double v) { return !std::isfinite(v); });
        const double first =
            bad == x.values.end() ? 11 : 2 + static_cast<double>(bad - x.values.begin());
        return Array({}, std::min(11.0, first));
      },
      {{uniform({3, 5})}, {uniform({0})}});
  const auto with = [](std::map<int, double> bad) {
    std::vector<double> values(1000, -1.5);
    for (const auto& [i, value] : bad) values[static_cast<size_t>(i)] = value;
    return not_smooth({literal({1000}, values)});
  };
  for (const auto& sample :
       {with({{0, NAN}}), with({{3, -INFINITY}, {5, NAN}}), with({{8, INFINITY}}), with({{9, NAN}}),
        with({{6, NAN}, {700, NAN}}), with({{999, NAN}})})
    spec.samples.push_back(sample);
  spec.bare_kernel = true;
  return spec;
}

}  // namespace

std::vector<OpSpec> reduce_specs() {
  std::vector<OpSpec> specs = sum_specs();
  OpSpec whole_sum = reduction(
      "sum of integers", {"sum"}, [](const Tensor& x) { return sum(x, {0}); },
      [](const Array& x) { return reduced(x, {0}, false, sum_of); },
      {{whole({5, 3}, 0, 200)}, {whole({0, 3}, 0, 20)}});  // beyond uint8: the sum is int64
  whole_sum.dtypes = kIntegerDTypes;
  specs.push_back(whole_sum);
  for (int mask = 1; mask < 16; ++mask) {
    std::vector<int> dims;
    for (int d = 0; d < 4; ++d)
      if (mask >> d & 1) dims.push_back(d);
    specs.push_back(reduction(
        "sum over the dimensions of mask " + std::to_string(mask), {"sum"},
        [=](const Tensor& x) { return sum(x, dims); },
        [=](const Array& x) { return reduced(x, dims, false, sum_of); },
        {{uniform({2, 17, 3, 4})}, {uniform({2, 3, 0, 4})}}));
  }
  specs.push_back(reduction(
      "sum of one element seen many times", {"sum"},
      [](const Tensor& x) {
        return sum(expand(x, {9, 7, 5}), {0, 2});
      },
      [](const Array& x) { return map(reshaped(x, {7}), [](double v) { return 45 * v; }); },
      {{uniform({7, 1})}}));
  specs.back().never_empty = "it has seven";

  for (int dim : {0, 1, -1}) {
    specs.push_back(extreme("max", max, dim, dim == 1));
    specs.push_back(extreme("min", min, dim, dim == 1));
  }
  for (OpSpec& spec : specs)  // the dimension of size 0 may not be the reduced one
    if (spec.name == "max along 1" || spec.name == "min along 1")
      spec.samples[3] = {uniform({0, 3}).without_grad()};
  OpSpec whole_max = extreme("max", max, -1, false);
  whole_max.name = "max of integers";
  whole_max.dtypes = kIntegerDTypes;
  whole_max.samples = {{whole({4, 5}, 0, 20)}, {whole({0, 3}, 0, 20)}};
  whole_max.errors = {};
  specs.push_back(whole_max);

  const std::vector<Sample> everything = {{distinct({3, 4})},
                                          {distinct({2, 3, 4, 5})},
                                          {uniform({})},
                                          not_smooth({uniform({3, 30000})})};  // by several threads
  for (bool largest : {true, false}) {
    OpSpec spec = reduction(
        largest ? "max of all" : "min of all", {largest ? "max" : "min", "scatter_add", "fill"},
        [=](const Tensor& x) { return largest ? max(x) : min(x); },
        [=](const Array& x) { return reduced(x, all_dims(x), false, largest ? max_of : min_of); },
        everything,
        {error<IndexError>(
            std::string(largest ? "max" : "min") + ": a tensor of shape [2, 0] is empty", [=] {
              largest ? max(zeros({2, 0})) : min(zeros({2, 0}));
            })});
    spec.never_empty = "an empty extreme is an error";
    specs.push_back(spec);
  }
  specs.push_back(reduction(
      "argmax", {"max"}, [](const Tensor& x) { return argmax(x, 1, true); },
      [](const Array& x) { return reduced(x, {1}, true, argmax_of); },
      {{distinct({3, 4})}, {distinct({2, 3, 4, 5})}, {uniform({0, 2})}},
      {error<IndexError>("argmax: dimension 0 of shape [0] is empty",
                         [] { argmax(zeros({0}), 0); })}));

  for (int dim : {-1, 0, 1}) {
    specs.push_back(softmax_spec("softmax", softmax, dim));
    specs.push_back(softmax_spec("log_softmax", log_softmax, dim));
  }

  OpSpec squares = reduction(
      "sum_squares", {"sum_squares"},
      [](const Tensor& x) {
        Tensor y =
            empty({}, {x.dtype() == DType::Float64 ? DType::Float64 : DType::Float32, x.device()});
        kernels::sum_squares(y, x);
        return y;
      },
      [](const Array& x) {
        Array y;
        for (double v : x.values) y.values[0] += v * v;
        return y;
      },
      {{uniform({3, 5})}, {uniform({100})}, {uniform({0})}, {uniform({70001})}});
  squares.terms = 70001;
  squares.bare_kernel = true;
  specs.push_back(squares);
  specs.push_back(first_not_finite());
  return specs;
}

}  // namespace ringgrad::test
