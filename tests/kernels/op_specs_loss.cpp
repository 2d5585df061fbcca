// Rows for the losses.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

const char* name(Reduction reduction) {
  return reduction == Reduction::Mean ? "mean" : reduction == Reduction::Sum ? "sum" : "none";
}

Array reduce(const Array& losses, double divisor, Reduction reduction) {
  if (reduction == Reduction::None) return losses;
  Array result;
  for (double v : losses.values) result.values[0] += v;
  if (reduction == Reduction::Mean) result.values[0] /= divisor;
  return result;
}

// x [N, C, …] (logits, or log-probabilities), t [N, …]; a third input is the class weights.
Array class_loss(const Arrays& in, bool logits, double smoothing, int64_t ignore,
                 Reduction reduction) {
  const Array& t = in[1];
  const int64_t classes = in[0].size(1);
  const int64_t inner = in[0].numel() ? in[0].numel() / in[0].size(0) / classes : 1;
  const Array x = reshaped(in[0], {in[0].size(0), classes, inner});
  const auto weight = [&](int64_t c) { return in.size() > 2 ? in[2](c) : 1; };
  Array losses(t.shape);
  double divisor = 0;
  for (int64_t row = 0; row < t.numel(); ++row) {
    const int64_t target = static_cast<int64_t>(t.values[row]);
    const int64_t n = row / inner;
    const int64_t i = row % inner;
    if (target == ignore) continue;
    double most = -INFINITY;
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) most = std::max(most, x(n, c, i));
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(x(n, c, i) - most);
    const auto log_probability = [&](int64_t c) {
      return logits ? x(n, c, i) - most - std::log(sum) : x(n, c, i);
    };
    losses.values[row] = -(1 - smoothing) * weight(target) * log_probability(target);
    for (int64_t c = 0; c < classes && smoothing > 0; ++c)
      losses.values[row] -=
          smoothing / static_cast<double>(classes) * weight(c) * log_probability(c);
    divisor += weight(target);
  }
  return reduce(losses, divisor, reduction);
}

using ClassLoss = Tensor (*)(const Tensor&, const Tensor&, const ClassLossOptions&);

OpSpec class_loss_spec(const std::string& op, ClassLoss run, double smoothing, int64_t ignore,
                       Reduction reduction) {
  OpSpec spec;
  spec.name = op + ", " + name(reduction) + (smoothing > 0 ? ", label smoothing" : "");
  spec.kernels = {op, op + "_backward", "sum"};
  spec.run = [=](const Tensors& in) {
    return Tensors{run(in[0], in[1],
                       {.weight = in.size() > 2 ? in[2] : Tensor(),
                        .ignore_index = ignore,
                        .label_smoothing = smoothing,
                        .reduction = reduction})};
  };
  spec.reference = [=](const Arrays& in) {
    return Arrays{class_loss(in, op == "cross_entropy", smoothing, ignore, reduction)};
  };
  const Input weight = uniform({4}, 0.5, 2).without_grad();
  const Input images = integers({2, 3, 2}, 0, 4);
  spec.samples = {
      {uniform({3, 4}), labels({2, 0, 3})},
      {uniform({3, 4}), labels({2, 0, 3}), weight},
      {uniform({4, 4}), labels({1, static_cast<double>(ignore), 3, 1}), weight},
      {uniform({2, 4, 3, 2}), images, weight},
      {uniform({2, 1}), labels({0, 0})},
      {uniform({2500, 5}), integers({2500}, 0, 5)},
      {uniform({5, 1500}, -4, 4), integers({5}, 0, 1500), uniform({1500}, 0.5, 2).without_grad()},
      not_smooth({literal({2, 3}, {-INFINITY, 0, -INFINITY, INFINITY, 0, 1}), labels({1, 1})}),
      {literal({2, 3}, {30, 0, -30, 8, 8, 0}), labels({2, 1})},
      {literal({2, 3}, {1000, 0, -1000, 1e4, 1e4, 0}), labels({2, 1})}};
  if (reduction == Reduction::Mean) {  // 0/0 without any row
    spec.samples.push_back(not_smooth({uniform({0, 4}), labels({})}));
    spec.samples.push_back(not_smooth({uniform({1, 4}), labels({static_cast<double>(ignore)})}));
  } else {
    spec.samples.push_back({uniform({0, 4}), labels({})});
  }
  spec.terms = 1500;
  return spec;
}

std::vector<ErrorCase> class_loss_errors(const std::string& op, ClassLoss run) {
  const auto fails = [run](const Shape& x, const std::vector<int64_t>& target,
                           ClassLossOptions options) {
    return [=] { run(zeros(x), tensor(target), options); };
  };
  return {
      error<IndexError>(
          op + ": the target of row 1 is 4, expected 0 to 3, or the ignore_index -100",
          fails({2, 4}, {3, 4}, {})),
      error<IndexError>(op + ": the target of row 0 is -1, expected 0 to 3, or the ignore_index 7",
                        fails({2, 4}, {-1, 7}, {.ignore_index = 7})),
      error<ShapeError>(op + ": the input has shape [2, 4], the target [3]",
                        fails({2, 4}, {0, 0, 0}, {})),
      error<ShapeError>(op + ": the input has shape [4], the target [1]", fails({4}, {0}, {})),
      error<ShapeError>(op + ": the input has shape [2, 0], the target [2]",
                        fails({2, 0}, {0, 0}, {})),
      error<ShapeError>(op + ": the class weight has shape [3], expected [4]",
                        fails({2, 4}, {0, 0}, {.weight = ones({3})})),
      error<DTypeError>(op + ": the target has dtype float32, expected int64; "
                             "convert with to(target, DType::Int64)",
                        [run] {
                          run(zeros({2, 4}), zeros({2}), {});
                        }),
      error<DTypeError>(op + ": unsupported dtype int64", [run] {
        run(zeros({2, 4}, {.dtype = DType::Int64}), tensor<int64_t>({0, 0}), {});
      })};
}

OpSpec elementwise_loss(const std::string& op,
                        Tensor (*run)(const Tensor&, const Tensor&, Reduction),
                        double (*f)(double, double), Reduction reduction, double low, double high) {
  OpSpec spec;
  spec.name = op + ", " + name(reduction);
  spec.kernels = {"sum"};
  spec.run = [=](const Tensors& in) { return Tensors{run(in[0], in[1], reduction)}; };
  spec.reference = [=](const Arrays& in) {
    return Arrays{reduce(map(in[0], in[1], f), static_cast<double>(in[0].numel()), reduction)};
  };
  spec.samples = {{uniform({3, 4}), uniform({3, 4}, low, high)},
                  {uniform({2, 3, 2, 2}), uniform({2, 3, 2, 2}, low, high).without_grad()},
                  {uniform({}), uniform({}, low, high)},
                  {uniform({0, 3}), uniform({0, 3}, low, high)}};
  if (reduction == Reduction::Mean) spec.samples.back().smooth = false;
  spec.errors = {
      error<ShapeError>(op + ": the input has shape [2], the target [2, 1], expected equal shapes",
                        [=] {
                          run(zeros({2}), zeros({2, 1}), reduction);
                        }),
      error<DTypeError>(op + ": dtypes float32 and int64 differ",
                        [=] { run(zeros({2}), zeros({2}, {.dtype = DType::Int64}), reduction); })};
  spec.terms = 12;
  return spec;
}

double squared_error(double x, double t) { return (x - t) * (x - t); }
// The definition -t log p - (1 - t) log(1 - p), p = sigmoid(x); 1 - p = sigmoid(-x).
double cross_entropy_of(double x, double t) {
  const auto log_sigmoid = [](double v) {
    return v < 0 ? v - std::log1p(std::exp(v)) : -std::log1p(std::exp(-v));
  };
  return -t * log_sigmoid(x) - (1 - t) * log_sigmoid(-x);
}

// The same of the probability itself, a logarithm below -100 being -100.
double entropy_of_probability(double p, double t) {
  return -t * std::max(std::log(p), -100.0) - (1 - t) * std::max(std::log(1 - p), -100.0);
}
double huber_of(double x, double t) {
  const double d = std::abs(x - t);
  return d < 0.75 ? d * d / 2 : 0.75 * (d - 0.75 / 2);
}

}  // namespace

std::vector<OpSpec> loss_specs() {
  std::vector<OpSpec> specs;
  for (Reduction reduction : {Reduction::Mean, Reduction::Sum, Reduction::None}) {
    specs.push_back(class_loss_spec("cross_entropy", cross_entropy, 0, -100, reduction));
    specs.push_back(class_loss_spec("cross_entropy", cross_entropy, 0.1, 7, reduction));
    specs.push_back(class_loss_spec("nll_loss", nll_loss, 0, -100, reduction));
    OpSpec mse = elementwise_loss("mse_loss", mse_loss, squared_error, reduction, -2, 2);
    mse.kernels = {reduction == Reduction::None ? "pow" : "sum_squares"};
    specs.push_back(mse);
    OpSpec bce =
        elementwise_loss("binary_cross_entropy_with_logits", binary_cross_entropy_with_logits,
                         cross_entropy_of, reduction, 0, 1);
    bce.kernels.insert(bce.kernels.end(), {"bce_with_logits", "bce_with_logits_backward"});
    bce.samples.push_back(
        {literal({6}, {-1e4, -100, -20, 20, 100, 1e4}), literal({6}, {0, 1, 0.5, 0.5, 0, 1})});
    specs.push_back(bce);
    OpSpec of_probabilities = elementwise_loss("binary_cross_entropy", binary_cross_entropy,
                                               entropy_of_probability, reduction, 0, 1);
    for (Sample& sample : of_probabilities.samples)
      sample.inputs[0] = uniform(sample.inputs[0].shape, 0.1, 0.9);
    of_probabilities.kernels.insert(of_probabilities.kernels.end(), {"bce", "bce_backward"});
    of_probabilities.samples.push_back(
        not_smooth({literal({4}, {0, 1, 0.5, 0.75}), literal({4}, {0, 1, 0, 1})}));
    of_probabilities.errors.push_back(
        error<Error>("binary_cross_entropy: the input has elements that are not in [0, 1]",
                     [] { binary_cross_entropy(full({2}, 1.5), zeros({2})); }));
    of_probabilities.errors.push_back(
        error<Error>("binary_cross_entropy: the target has elements that are not in [0, 1]",
                     [] { binary_cross_entropy(full({2}, 0.5), full({2}, NAN)); }));
    specs.push_back(of_probabilities);
    specs.push_back(elementwise_loss(
        "l1_loss", l1_loss, [](double x, double t) { return std::abs(x - t); }, reduction, -2, 2));
    OpSpec huber = elementwise_loss(
        "huber_loss",
        [](const Tensor& x, const Tensor& t, Reduction r) { return huber_loss(x, t, 0.75, r); },
        huber_of, reduction, -2, 2);
    huber.kernels.insert(huber.kernels.end(), {"huber", "huber_backward"});
    specs.push_back(huber);
    huber.name = std::string("smooth_l1_loss, ") + name(reduction);
    huber.run = [=](const Tensors& in) {
      return Tensors{smooth_l1_loss(in[0], in[1], 0.75, reduction)};
    };
    huber.reference = [=](const Arrays& in) {
      const auto smooth = [](double x, double t) { return huber_of(x, t) / 0.75; };
      return Arrays{
          reduce(map(in[0], in[1], smooth), static_cast<double>(in[0].numel()), reduction)};
    };
    huber.errors.clear();
    specs.push_back(huber);
  }
  specs[0].errors = class_loss_errors("cross_entropy", cross_entropy);
  specs[0].errors.push_back(
      error<Error>("cross_entropy: the label smoothing is 1.5, expected a number in [0, 1]", [] {
        cross_entropy(zeros({1, 2}), tensor<int64_t>({0}), {.label_smoothing = 1.5});
      }));
  specs[2].errors = class_loss_errors("nll_loss", nll_loss);
  specs[2].errors.push_back(error<Error>("nll_loss: the label smoothing is 0.1, expected 0", [] {
    nll_loss(zeros({1, 2}), tensor<int64_t>({0}), {.label_smoothing = 0.1});
  }));
  return specs;
}

}  // namespace ringgrad::test
