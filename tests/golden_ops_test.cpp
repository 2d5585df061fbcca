// Operations, optimizers and schedules against the values that PyTorch computed (tests/golden/make_ops.py), in float64.
#include <functional>
#include <map>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/nn/optim/lr_scheduler.h"
#include "ringgrad/nn/optim/optimizer.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/golden.h"

using namespace ringgrad;
using namespace ringgrad::test;
using nlohmann::json;

namespace {

constexpr double kTolerance = 2e-11;  // the files hold 12 digits

using Named = std::map<std::string, Tensor>;
using Operation = std::function<Named(const json& args, const Named& in)>;

Tensor optional(const Named& in, const char* name) { return in.contains(name) ? in.at(name) : Tensor(); }

Pair pair(const json& args, const char* name) { return {args[name][0].get<int64_t>(), args[name][1].get<int64_t>()}; }

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
  const Tensor mean = in.at("running_mean"), var = in.at("running_var");
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
          .beta1 = args.value("beta1", 0.9),
          .beta2 = args.value("beta2", 0.999),
          .eps = args.value("eps", 1e-8),
          .weight_decay = args["weight_decay"]};
}

// One operation of a tensor called x.
Operation unary(Tensor (*f)(const Tensor&)) {
  return [f](const json&, const Named& in) -> Named { return {{"y", f(in.at("x"))}}; };
}

const std::map<std::string, Operation> kOperations = {
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
       return {{"y", binary_cross_entropy_with_logits(in.at("x"), in.at("target"), reduction(args))}};
     }},
    {"batch_norm", [](const json& args, const Named& in) { return batch_norm_case(args, in, Activation::None); }},
    {"batch_norm_add_relu",
     [](const json& args, const Named& in) { return batch_norm_case(args, in, Activation::Relu); }},
    {"layer_norm",
     [](const json& args, const Named& in) -> Named {
       const Shape normalized(args["normalized_shape"].get<std::vector<int64_t>>());
       return {{"y", layer_norm(in.at("x"), normalized, in.at("weight"), in.at("bias"), args["eps"])}};
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
       return optimize<optim::SGD>(in, optim::SGDOptions{.lr = args["lr"],
                                                         .momentum = args.value("momentum", 0.0),
                                                         .dampening = args.value("dampening", 0.0),
                                                         .weight_decay = args.value("weight_decay", 0.0),
                                                         .nesterov = args.value("nesterov", false)});
     }},
    {"adam", [](const json& args,
                const Named& in) { return optimize<optim::Adam>(in, adam_options<optim::AdamOptions>(args)); }},
    {"adamw", [](const json& args,
                 const Named& in) { return optimize<optim::AdamW>(in, adam_options<optim::AdamWOptions>(args)); }},
    {"clip_grad_norm",
     [](const json& args, const Named& in) -> Named {
       std::vector<Tensor> parameters;
       for (const char* name : {"g0", "g1"}) {
         parameters.push_back(zeros_like(in.at(name)).set_requires_grad());
         parameters.back().set_grad(in.at(name));
       }
       const Tensor norm = optim::clip_grad_norm_(parameters, args["max_norm"]);
       return {{"norm", norm}, {"g0", parameters[0].grad()}, {"g1", parameters[1].grad()}};
     }},
};

optim::Schedule schedule(const std::string& name, const json& args) {
  const optim::LinearLR linear{.start_factor = args.value("start_factor", 0.0),
                               .total_iters = args.value("total_iters", 0)};
  const optim::CosineAnnealingLR cosine{.t_max = args.value("t_max", 0), .eta_min = args.value("eta_min", 0.0)};
  if (name == "StepLR") return optim::StepLR{.step_size = args["step_size"], .gamma = args["gamma"]};
  if (name == "LinearLR") return linear;
  if (name == "CosineAnnealingLR") return cosine;
  if (name == "OneCycleLR")
    return optim::OneCycleLR{.max_lr = args["max_lr"],
                             .total_steps = args["total_steps"],
                             .pct_start = args.value("pct_start", 0.3),
                             .div_factor = args.value("div_factor", 25.0)};
  if (name == "warm_up_then_cosine") return optim::SequentialLR{.schedules = {linear, cosine}, .milestones = {3}};
  throw std::runtime_error("no such schedule: " + name);
}

void check_schedule(const json& row) {
  const Tensor param = zeros({1}).set_requires_grad();
  optim::SGD optimizer(std::vector<Tensor>{param}, optim::SGDOptions{.lr = row["args"]["base_lr"]});
  optim::LRScheduler scheduler(optimizer, schedule(row["op"], row["args"]));
  const json& expected = row["outputs"]["lr"]["values"];
  for (size_t step = 0; step < expected.size(); ++step) {
    INFO("step " << step);
    REQUIRE(optimizer.lr() == Approx(expected[step].get<double>()).epsilon(kTolerance).margin(kTolerance));
    scheduler.step();
  }
}

void check_operation(const Operation& run, const json& row) {
  Named in;
  for (const auto& [name, array] : row["inputs"].items()) in[name] = golden_tensor(array);
  for (const auto& [name, array] : row["grads"].items()) in.at(name).set_requires_grad();
  const Named out = run(row["args"], in);
  for (const auto& [name, array] : row["outputs"].items()) {
    INFO("output " << name);
    require_golden(out.at(name), array, kTolerance);
  }
  if (row["grads"].empty()) return;
  out.at("y").backward(in.at("dy"));
  for (const auto& [name, array] : row["grads"].items()) {
    INFO("gradient of " << name);
    require_golden(in.at(name).grad(), array, kTolerance);
  }
}

}  // namespace

TEST_CASE("operations, optimizers and schedules give PyTorch's values", "[quick]") {
  const json golden = load_golden("ops.json");
  REQUIRE(golden["cases"].size() > 80);
  for (const json& row : golden["cases"]) {
    const std::string op = row["op"];
    INFO(op << " " << row["args"].dump());
    const auto operation = kOperations.find(op);
    if (operation != kOperations.end()) {
      check_operation(operation->second, row);
    } else {
      check_schedule(row);
    }
  }
}
