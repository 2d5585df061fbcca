// The operations, optimizers and schedules of tests/golden/make_ops.py, but those of
// tests/golden/tensor_ops.py.
#include "ringgrad/tests/golden/golden_operations.h"

#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/optim/clip_grad.h"
#include "ringgrad/nn/optim/lbfgs.h"
#include "ringgrad/nn/optim/lr_scheduler.h"
#include "ringgrad/nn/optim/optimizer.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::test {

using nlohmann::json;

namespace {

Tensor optional(const Named& in, const char* name) {
  return in.contains(name) ? in.at(name) : Tensor();
}

Pair pair(const json& args, const char* name) {
  return {args[name][0].get<int64_t>(), args[name][1].get<int64_t>()};
}

Reduction reduction(const json& args) {
  const std::string name = args["reduction"];
  return name == "none" ? Reduction::None : name == "sum" ? Reduction::Sum : Reduction::Mean;
}

ClassLossOptions class_loss(const json& args, const Named& in) {
  return {.weight = optional(in, "class_weight"),
          .ignore_index = args.value("ignore_index", -100),
          .label_smoothing = args.value("label_smoothing", 0.0),
          .reduction = reduction(args)};
}

Pool2dOptions pooling(const json& args) {
  return {.kernel = pair(args, "kernel"),
          .stride = pair(args, "stride"),
          .padding = pair(args, "padding"),
          .count_padding = args.value("count_padding", true)};
}

Named batch_norm_case(const json& args, const Named& in, Activation activation) {
  const Tensor mean = in.at("running_mean");
  const Tensor var = in.at("running_var");
  const Tensor y = batch_norm(in.at("x"), in.at("weight"), in.at("bias"), mean, var,
                              {.training = args["training"],
                               .momentum = args["momentum"],
                               .eps = args["eps"],
                               .activation = activation,
                               .residual = optional(in, "residual")});
  return {{"y", y}, {"running_mean", mean}, {"running_var", var}};
}

// Three steps with the gradients grad0 … grad2.
template <class Optimizer, class Options>
Named optimize(const Named& in, const Options& options) {
  const Tensor param = in.at("param").set_requires_grad();
  Optimizer optimizer(std::vector<Tensor>{param}, options);
  Named out;
  for (const std::string step : {"0", "1", "2"}) {
    optimizer.zero_grad();
    copy_(param.grad(), in.at("grad" + step));
    optimizer.step();
    out["param" + step] = tensor(to_vector<double>(param));
  }
  return out;
}

template <class Options>
Options adam_options(const json& args) {
  return {.lr = args["lr"],
          .betas = {args.value("beta1", 0.9), args.value("beta2", 0.999)},
          .eps = args.value("eps", 1e-8),
          .weight_decay = args["weight_decay"],
          .amsgrad = args.value("amsgrad", false),
          .maximize = args.value("maximize", false)};
}

// One operation of a tensor called x.
Operation unary(Tensor (*f)(const Tensor&)) {
  return [f](const json&, const Named& in) -> Named { return {{"y", f(in.at("x"))}}; };
}

const Operations kOperations = {
    {"gelu", unary(gelu)},
    {"silu", unary(silu)},
    {"sigmoid", unary(sigmoid)},
    {"log_softmax", unary([](const Tensor& x) { return log_softmax(x, 1); })},
    {"var", unary([](const Tensor& x) { return var(x, {1}); })},
    {"cross_entropy",
     [](const json& args, const Named& in) -> Named {
       return {{"y", cross_entropy(in.at("x"), in.at("target"), class_loss(args, in))}};
     }},
    {"nll_loss",
     [](const json& args, const Named& in) -> Named {
       return {{"y", nll_loss(in.at("x"), in.at("target"), class_loss(args, in))}};
     }},
    {"binary_cross_entropy_with_logits",
     [](const json& args, const Named& in) -> Named {
       return {
           {"y", binary_cross_entropy_with_logits(in.at("x"), in.at("target"), reduction(args))}};
     }},
    {"batch_norm",
     [](const json& args, const Named& in) { return batch_norm_case(args, in, Activation::None); }},
    {"batch_norm_add_relu",
     [](const json& args, const Named& in) { return batch_norm_case(args, in, Activation::Relu); }},
    {"layer_norm",
     [](const json& args, const Named& in) -> Named {
       const Shape normalized(args["normalized_shape"].get<std::vector<int64_t>>());
       return {{"y", layer_norm(in.at("x"), normalized, in.at("weight"), in.at("bias"),
                                args["eps"].get<double>())}};
     }},
    {"conv2d",
     [](const json& args, const Named& in) -> Named {
       return {{"y", conv2d(in.at("x"), in.at("w"), in.at("b"),
                            {.stride = pair(args, "stride"),
                             .padding = pair(args, "padding"),
                             .dilation = pair(args, "dilation"),
                             .groups = args["groups"]})}};
     }},
    {"conv_transpose2d",
     [](const json& args, const Named& in) -> Named {
       return {{"y", conv_transpose2d(in.at("x"), in.at("w"), in.at("b"),
                                      {.stride = pair(args, "stride"),
                                       .padding = pair(args, "padding"),
                                       .output_padding = pair(args, "output_padding"),
                                       .dilation = pair(args, "dilation"),
                                       .groups = args["groups"]})}};
     }},
    {"adaptive_avg_pool2d",
     [](const json& args, const Named& in) -> Named {
       return {{"y", adaptive_avg_pool2d(in.at("x"), pair(args, "output_size"))}};
     }},
    {"max_pool2d",
     [](const json& args, const Named& in) -> Named {
       return {{"y", max_pool2d(in.at("x"), pooling(args))}};
     }},
    {"avg_pool2d",
     [](const json& args, const Named& in) -> Named {
       return {{"y", avg_pool2d(in.at("x"), pooling(args))}};
     }},
    {"sgd",
     [](const json& args, const Named& in) {
       return optimize<optim::SGD>(
           in, optim::SGDOptions{.lr = args["lr"],
                                 .momentum = args.value("momentum", 0.0),
                                 .dampening = args.value("dampening", 0.0),
                                 .weight_decay = args.value("weight_decay", 0.0),
                                 .nesterov = args.value("nesterov", false),
                                 .maximize = args.value("maximize", false)});
     }},
    {"adam",
     [](const json& args, const Named& in) {
       auto options = adam_options<optim::AdamOptions>(args);
       options.decoupled_weight_decay = args.value("decoupled_weight_decay", false);
       return optimize<optim::Adam>(in, options);
     }},
    {"adamw",
     [](const json& args, const Named& in) {
       return optimize<optim::AdamW>(in, adam_options<optim::AdamWOptions>(args));
     }},
    {"rmsprop",
     [](const json& args, const Named& in) {
       return optimize<optim::RMSprop>(
           in, optim::RMSpropOptions{.lr = args["lr"],
                                     .alpha = args.value("alpha", 0.99),
                                     .eps = args.value("eps", 1e-8),
                                     .weight_decay = args.value("weight_decay", 0.0),
                                     .momentum = args.value("momentum", 0.0),
                                     .centered = args.value("centered", false),
                                     .maximize = args.value("maximize", false)});
     }},
    {"adagrad",
     [](const json& args, const Named& in) {
       return optimize<optim::Adagrad>(
           in, optim::AdagradOptions{
                   .lr = args["lr"],
                   .lr_decay = args.value("lr_decay", 0.0),
                   .weight_decay = args.value("weight_decay", 0.0),
                   .initial_accumulator_value = args.value("initial_accumulator_value", 0.0),
                   .eps = args.value("eps", 1e-10),
                   .maximize = args.value("maximize", false)});
     }},
    {"adadelta",
     [](const json& args, const Named& in) {
       return optimize<optim::Adadelta>(
           in, optim::AdadeltaOptions{.lr = args["lr"],
                                      .rho = args.value("rho", 0.9),
                                      .eps = args.value("eps", 1e-6),
                                      .weight_decay = args.value("weight_decay", 0.0),
                                      .maximize = args.value("maximize", false)});
     }},
    {"lbfgs",
     [](const json& args, const Named& in) -> Named {
       const Tensor x = in.at("param").set_requires_grad();
       const bool searches = args.contains("line_search_fn");
       optim::LBFGS optimizer(
           std::vector<Tensor>{x},
           {.lr = args.value("lr", 1.0),
            .max_iter = args.value("max_iter", 20),
            .history_size = args.value("history_size", 100),
            .line_search = searches ? optim::LineSearch::StrongWolfe : optim::LineSearch::None});
       const auto rosenbrock = [&] {
         optimizer.zero_grad();
         const Tensor loss = square(1 - x[0]) + 100 * square(x[1] - square(x[0]));
         loss.backward();
         return loss;
       };
       Named out;
       for (const std::string step : {"0", "1", "2"}) {
         optimizer.step(rosenbrock);
         out["param" + step] = tensor(to_vector<double>(x));
       }
       return out;
     }},
    {"plateau",
     [](const json& args, const Named& in) -> Named {
       optim::SGD optimizer(std::vector<Tensor>{zeros({1}).set_requires_grad()},
                            optim::SGDOptions{.lr = 0.2});
       optim::ReduceLROnPlateau plateau(optimizer,
                                        {.maximize = args.value("mode", "min") == "max",
                                         .factor = args.value("factor", 0.1),
                                         .patience = args.value("patience", 10),
                                         .threshold = args.value("threshold", 1e-4),
                                         .relative = args.value("threshold_mode", "rel") == "rel",
                                         .cooldown = args.value("cooldown", 0),
                                         .min_lr = args.value("min_lr", 0.0)});
       std::vector<double> rates;
       for (double measure : to_vector<double>(in.at("measures"))) {
         plateau.step(measure);
         rates.push_back(optimizer.lr());
       }
       return {{"lr", tensor(rates)}};
     }},
    {"clip_grad_value",
     [](const json& args, const Named& in) -> Named {
       std::vector<Tensor> parameters;
       for (const char* name : {"g0", "g1"}) {
         parameters.push_back(zeros_like(in.at(name)).set_requires_grad());
         parameters.back().set_grad(in.at(name));
       }
       optim::clip_grad_value_(parameters, args["value"].get<double>());
       return {{"g0", parameters[0].grad()}, {"g1", parameters[1].grad()}};
     }},
    {"clip_grad_norm",
     [](const json& args, const Named& in) -> Named {
       std::vector<Tensor> parameters;
       for (const char* name : {"g0", "g1"}) {
         parameters.push_back(zeros_like(in.at(name)).set_requires_grad());
         parameters.back().set_grad(in.at(name));
       }
       const Tensor norm = optim::clip_grad_norm_(parameters, args["max_norm"].get<double>());
       return {{"norm", norm}, {"g0", parameters[0].grad()}, {"g1", parameters[1].grad()}};
     }},
};

optim::Schedule schedule(const std::string& name, const json& args) {
  const optim::LinearLR linear{.start_factor = args.value("start_factor", 0.0),
                               .total_iters = args.value("total_iters", 0)};
  const optim::CosineAnnealingLR cosine{.t_max = args.value("t_max", 0),
                                        .eta_min = args.value("eta_min", 0.0)};
  if (name == "StepLR")
    return optim::StepLR{.step_size = args["step_size"], .gamma = args["gamma"]};
  if (name == "LinearLR") return linear;
  if (name == "LambdaLR")
    return optim::LambdaLR{[](int64_t step) { return 1 / (1 + static_cast<double>(step)); }};
  if (name == "CosineAnnealingLR") return cosine;
  if (name == "OneCycleLR")
    return optim::OneCycleLR{.max_lr = args["max_lr"],
                             .total_steps = args["total_steps"],
                             .pct_start = args.value("pct_start", 0.3),
                             .div_factor = args.value("div_factor", 25.0)};
  if (name == "ExponentialLR") return optim::ExponentialLR{.gamma = args["gamma"]};
  if (name == "ConstantLR")
    return optim::ConstantLR{.factor = args["factor"], .total_iters = args["total_iters"]};
  if (name == "PolynomialLR")
    return optim::PolynomialLR{.total_iters = args["total_iters"], .power = args["power"]};
  if (name == "MultiplicativeLR")
    return optim::MultiplicativeLR{
        [](int64_t step) { return 1 / (1 + static_cast<double>(step)); }};
  if (name == "CosineAnnealingWarmRestarts")
    return optim::CosineAnnealingWarmRestarts{
        .t_0 = args["t_0"], .t_mult = args["t_mult"], .eta_min = args["eta_min"]};
  if (name == "CyclicLR")
    return optim::CyclicLR{.max_lr = args["max_lr"],
                           .step_size_up = args["up"],
                           .step_size_down = args["down"],
                           .mode = args["mode"] == "triangular2" ? optim::CyclicMode::Triangular2
                                   : args["mode"] == "exp_range" ? optim::CyclicMode::ExpRange
                                                                 : optim::CyclicMode::Triangular,
                           .gamma = args["gamma"]};
  if (name == "warm_up_then_cosine")
    return optim::SequentialLR{.schedules = {linear, cosine}, .milestones = {3}};
  throw std::runtime_error("no such schedule: " + name);
}

std::vector<double> schedule_rates(const json& row) {
  const Tensor param = zeros({1}).set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{param}, optim::SGDOptions{.lr = row["args"]["base_lr"]});
  optim::LRScheduler scheduler(optimizer, schedule(row["op"], row["args"]));
  std::vector<double> rates;
  for (size_t step = 0; step < row["outputs"]["lr"]["values"].size(); ++step) {
    rates.push_back(optimizer.lr());
    scheduler.step();
  }
  return rates;
}

}  // namespace

Tensor golden_tensor(const json& array, DType dtype) {
  if (array.is_null()) return {};
  const Shape shape(array["shape"].get<std::vector<int64_t>>());
  const json& values = array["values"];
  if (!values.empty() && values[0].is_number_integer())
    return tensor(values.get<std::vector<int64_t>>(), shape);
  return in_dtype(tensor(values.get<std::vector<double>>(), shape), dtype);
}

std::string golden_difference(const Tensor& x, const json& array, double tolerance) {
  const auto expected = array["values"].get<std::vector<double>>();
  if (!x || !(x.shape() == Shape(array["shape"].get<std::vector<int64_t>>())))
    return "another shape, or nothing";
  const auto found = to_vector<double>(x);
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(std::abs(found[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i]))))
      return "element " + std::to_string(i) + ": " + std::to_string(found[i]) + ", expected " +
             std::to_string(expected[i]);
  return "";
}

std::string golden_case_difference(const json& row, DType dtype, double tolerance) {
  const std::string op = row["op"];
  const Operations& named = tensor_operations();
  const auto entry = kOperations.contains(op) ? kOperations.find(op) : named.find(op);
  if (entry == named.end())
    return golden_difference(tensor(schedule_rates(row)), row["outputs"]["lr"], tolerance);
  Named in;
  for (const auto& [name, array] : row["inputs"].items()) in[name] = golden_tensor(array, dtype);
  for (const auto& [name, array] : row["grads"].items()) in.at(name).set_requires_grad();
  const Named out = entry->second(row["args"], in);
  for (const auto& [name, array] : row["outputs"].items())
    if (const auto wrong = golden_difference(out.at(name), array, tolerance); !wrong.empty())
      return "output " + name + ", " + wrong;
  if (row["grads"].empty()) return "";
  out.at("y").backward(in.at("dy"));
  for (const auto& [name, array] : row["grads"].items())
    if (const auto wrong = golden_difference(in.at(name).grad(), array, tolerance); !wrong.empty())
      return "gradient of " + name + ", " + wrong;
  return "";
}

}  // namespace ringgrad::test
