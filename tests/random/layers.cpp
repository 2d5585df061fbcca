// Convolutions, pools, norms and losses of random programs.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/tests/random/operations.h"

namespace ringgrad::test {

using nlohmann::json;

namespace {

Pair pair(const json& args, const char* name) {
  return {args[name][0].get<int64_t>(), args[name][1].get<int64_t>()};
}

Reduction reduction(const json& args) {
  const std::string name = args["reduction"];
  return name == "none" ? Reduction::None : name == "sum" ? Reduction::Sum : Reduction::Mean;
}

// Optional tensors are the last inputs of a step.
Tensor at(const Tensors& in, size_t place) { return place < in.size() ? in[place] : Tensor(); }

Pool2dOptions pooling(const json& args) {
  return {.kernel = pair(args, "kernel"),
          .stride = pair(args, "stride"),
          .padding = pair(args, "padding"),
          .count_padding = args["count_padding"]};
}

void add_images(ProgramOperations& all) {
  all["conv2d"] = [](const json& args, const Tensors& in) -> Tensors {
    return {conv2d(in[0], in[1], at(in, 2),
                   {.stride = pair(args, "stride"),
                    .padding = pair(args, "padding"),
                    .dilation = pair(args, "dilation"),
                    .groups = args["groups"]})};
  };
  all["conv1d"] = [](const json& args, const Tensors& in) -> Tensors {
    return {conv1d(in[0], in[1], at(in, 2),
                   {.stride = args["stride"],
                    .padding = args["padding"],
                    .dilation = args["dilation"],
                    .groups = args["groups"]})};
  };
  all["conv_transpose2d"] = [](const json& args, const Tensors& in) -> Tensors {
    return {conv_transpose2d(in[0], in[1], at(in, 2),
                             {.stride = pair(args, "stride"),
                              .padding = pair(args, "padding"),
                              .output_padding = pair(args, "output_padding"),
                              .dilation = pair(args, "dilation"),
                              .groups = args["groups"]})};
  };
  all["max_pool2d"] = [](const json& args, const Tensors& in) -> Tensors {
    return {max_pool2d(in[0], pooling(args))};
  };
  all["avg_pool2d"] = [](const json& args, const Tensors& in) -> Tensors {
    return {avg_pool2d(in[0], pooling(args))};
  };
  all["adaptive_avg_pool2d"] = [](const json& args, const Tensors& in) -> Tensors {
    return {adaptive_avg_pool2d(in[0], pair(args, "size"))};
  };
  all["upsample"] = [](const json& args, const Tensors& in) -> Tensors {
    return {upsample(
        in[0], pair(args, "size"),
        {.mode = args["mode"] == "bilinear" ? UpsampleMode::Bilinear : UpsampleMode::Nearest,
         .align_corners = args["align_corners"]})};
  };
}

void add_norms(ProgramOperations& all) {
  // Also returns the running statistics, because the operation has written to them.
  all["batch_norm"] = [](const json& args, const Tensors& in) -> Tensors {
    const Tensor mean = clone(in[3]);
    const Tensor var = clone(in[4]);
    return {
        batch_norm(in[0], in[1], in[2], mean, var,
                   {.training = args["training"],
                    .momentum = args["momentum"],
                    .eps = args["eps"],
                    .activation = args["relu"].get<bool>() ? Activation::Relu : Activation::None,
                    .residual = at(in, 5)}),
        mean, var};
  };
  all["layer_norm"] = [](const json& args, const Tensors& in) -> Tensors {
    return {layer_norm(in[0], args["shape"].get<std::vector<int64_t>>(), at(in, 1), at(in, 2),
                       args["eps"])};
  };
  all["group_norm"] = [](const json& args, const Tensors& in) -> Tensors {
    return {group_norm(in[0], args["groups"], at(in, 1), at(in, 2), args["eps"])};
  };
}

ClassLossOptions class_loss(const json& args, const Tensors& in) {
  return {.weight = at(in, 2),
          .ignore_index = args["ignore_index"],
          .label_smoothing = args["label_smoothing"],
          .reduction = reduction(args)};
}

void add_losses(ProgramOperations& all) {
  all["cross_entropy"] = [](const json& args, const Tensors& in) -> Tensors {
    return {cross_entropy(in[0], in[1], class_loss(args, in))};
  };
  all["nll_loss"] = [](const json& args, const Tensors& in) -> Tensors {
    return {nll_loss(in[0], in[1], class_loss(args, in))};
  };
  using Loss = Tensor (*)(const Tensor&, const Tensor&, Reduction);
  const std::map<std::string, Loss> losses = {{"mse_loss", mse_loss},
                                              {"l1_loss", l1_loss},
                                              {"bce_with_logits", binary_cross_entropy_with_logits},
                                              {"bce", binary_cross_entropy}};
  for (const auto& [name, loss] : losses)
    all[name] = [loss = loss](const json& args, const Tensors& in) -> Tensors {
      return {loss(in[0], in[1], reduction(args))};
    };
  all["huber_loss"] = [](const json& args, const Tensors& in) -> Tensors {
    return {huber_loss(in[0], in[1], args["c"].get<double>(), reduction(args))};
  };
  all["smooth_l1_loss"] = [](const json& args, const Tensors& in) -> Tensors {
    return {smooth_l1_loss(in[0], in[1], args["c"].get<double>(), reduction(args))};
  };
  all["kl_div"] = [](const json& args, const Tensors& in) -> Tensors {
    return {kl_div(in[0], in[1], reduction(args), args["log_target"])};
  };
}

}  // namespace

void add_layers(ProgramOperations& all) {
  add_images(all);
  add_norms(all);
  add_losses(all);
}

}  // namespace ringgrad::test
