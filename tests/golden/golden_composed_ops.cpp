// The operations of tests/golden/composed_ops.py, under the same names.
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/attention.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/recurrent.h"
#include "ringgrad/tests/golden/golden_operations.h"

namespace ringgrad::test {
namespace {

using Case = std::function<Tensor(const Named& in)>;

Operation operation(const Case& run) {
  return [run](const nlohmann::json&, const Named& in) -> Named { return {{"y", run(in)}}; };
}
Operation of_x(const std::function<Tensor(const Tensor&)>& run) {
  return operation([run](const Named& in) { return run(in.at("x")); });
}
Operation of_pair(const std::function<Tensor(const Tensor&, const Tensor&)>& run) {
  return operation([=](const Named& in) { return run(in.at("a"), in.at("b")); });
}

void add_functions(Operations& all) {
  all["floor"] = of_x(floor);
  all["ceil"] = of_x([](const Tensor& x) { return x.ceil(); });
  all["round"] = of_x(round);
  all["trunc"] = of_x([](const Tensor& x) { return x.trunc(); });
  all["sign"] = of_x(sign);
  all["clamp from"] = of_x([](const Tensor& x) { return x.clamp(0.3); });
  all["clamp to"] = of_x([](const Tensor& x) { return clamp_max(x, 0.3); });
  all["mish"] = of_x(mish);
  all["hardswish"] = of_x(hardswish);
  all["hardsigmoid"] = of_x(hardsigmoid);
  all["relu6"] = of_x(relu6);
  all["selu"] = of_x(selu);
  all["celu"] = of_x([](const Tensor& x) { return celu(x, 0.75); });
  all["softsign"] = of_x(softsign);
  all["tanhshrink"] = of_x(tanhshrink);
  all["hardshrink"] = of_x([](const Tensor& x) { return hardshrink(x, 0.6); });
  all["softshrink"] = of_x([](const Tensor& x) { return softshrink(x, 0.6); });
  all["hardtanh"] = of_x([](const Tensor& x) { return hardtanh(x, -0.6, 1.1); });
  all["threshold"] = of_x([](const Tensor& x) { return threshold(x, 0.3, -2); });
  all["gelu_tanh"] = of_x(gelu_tanh);
  all["glu"] = of_x([](const Tensor& x) { return glu(x, 1); });
  all["softmin"] = of_x([](const Tensor& x) { return softmin(x, 1); });
  all["prod"] = of_x([](const Tensor& x) { return x.prod(); });
  all["prod 1"] = of_x([](const Tensor& x) { return prod(x, 1); });
  all["prod 0 keep"] = of_x([](const Tensor& x) { return x.prod(0, true); });
  all["cumprod 0"] = of_x([](const Tensor& x) { return x.cumprod(0); });
  all["cumprod 1"] = of_x([](const Tensor& x) { return cumprod(x, 1); });
  all["normalize"] = of_x([](const Tensor& x) { return normalize(x, 2, -1); });
}

void add_shapes(Operations& all) {
  all["flip"] = of_x([](const Tensor& x) { return x.flip({0, -1}); });
  all["roll"] = of_x([](const Tensor& x) { return x.roll({1, -7}, {0, 1}); });
  all["roll all"] = of_x([](const Tensor& x) { return roll(x, {-4}); });
  for (const char* indexing : {"ij", "xy"})
    all[std::string("meshgrid ") + indexing] = operation([=](const Named& in) {
      return stack(meshgrid({in.at("a"), in.at("b"), in.at("c")}, indexing));
    });
  all["unfold of rows"] = of_x([](const Tensor& x) { return x.unfold(1, 3, 2); });
  all["unfold"] = of_x([](const Tensor& x) {
    return unfold(x, {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 0}, .dilation = {2, 1}});
  });
  all["pixel_shuffle"] = of_x([](const Tensor& x) { return pixel_shuffle(x, 2); });
  all["pixel_unshuffle"] = of_x([](const Tensor& x) { return pixel_unshuffle(x, 2); });
  all["pad"] = of_x([](const Tensor& x) { return pad(x, {-1, 2, 1, -2}, 0.5); });
  all["pad away"] = of_x([](const Tensor& x) { return pad(x, {-1, -2, 0, -1}); });
  const auto border = [&](const char* name, std::vector<int64_t> widths, PadMode mode) {
    all[std::string("pad ") + name] = of_x([=](const Tensor& x) { return pad(x, widths, mode); });
  };
  border("reflect", {2, 1, 0, 2}, PadMode::Reflect);
  border("replicate", {3, 0, 1, 5}, PadMode::Replicate);
  border("circular", {3, 1, 0, 3}, PadMode::Circular);
  border("replicate less", {2, -1, -1, 2}, PadMode::Replicate);
}

void add_products(Operations& all) {
  all["matmul"] = of_pair(matmul);
  all["conv2d of one"] = operation([](const Named& in) {
    return conv2d(in.at("x"), in.at("w"), in.at("b"), {.stride = 2, .padding = 1});
  });
  all["conv_transpose2d of one"] = operation([](const Named& in) {
    return conv_transpose2d(in.at("x"), in.at("w"), in.at("b"), {.stride = 2});
  });
  all["conv1d of one"] = operation([](const Named& in) { return conv1d(in.at("x"), in.at("w")); });
  struct Window {
    int64_t kernel;
    int64_t stride;
    int64_t padding;
  };
  for (const auto& [kernel, stride, padding] :
       {Window{2, 2, 0}, Window{3, 2, 1}, Window{2, 3, 1}, Window{3, 3, 0}}) {
    const std::string key =
        std::to_string(kernel) + " " + std::to_string(stride) + " " + std::to_string(padding);
    all["max_pool2d ceil " + key] = of_x([k = kernel, s = stride, p = padding](const Tensor& x) {
      return max_pool2d(x, k, s, p, 1, true);
    });
    for (const bool count : {false, true})
      all["avg_pool2d ceil " + key + " " + std::to_string(count)] =
          of_x([k = kernel, s = stride, p = padding, count](const Tensor& x) {
            return avg_pool2d(x, k, s, p, true, count);
          });
  }
  all["instance_norm"] = operation(
      [](const Named& in) { return instance_norm(in.at("x"), in.at("w"), in.at("b"), 1e-3); });
  all["cosine_similarity"] =
      of_pair([](const Tensor& a, const Tensor& b) { return cosine_similarity(a, b, -1); });
  all["pairwise_distance"] = of_pair(
      [](const Tensor& a, const Tensor& b) { return pairwise_distance(a, b, 3, 1e-6, true); });
  const auto attention = [&](const std::string& end, const auto& mask_of, bool causal,
                             std::optional<double> scale) {
    all["attention" + end] = operation([=](const Named& in) {
      return scaled_dot_product_attention(in.at("q"), in.at("k"), in.at("v"), mask_of(in), 0,
                                          causal, scale);
    });
  };
  const auto none = [](const Named&) { return Tensor(); };
  attention("", none, false, {});
  attention(" causal", none, true, {});
  attention(
      " with added", [](const Named& in) { return in.at("m"); }, false, 0.25);
  attention(" masked", [](const Named& in) -> Tensor { return in.at("m") > 0; }, false, {});
}

// Labels 1 and -1, in the dtype of what they are for.
Tensor sign_of(const Named& in) {
  return to(in.at("s"), in.at(in.contains("x") ? "x" : "a").dtype());
}

void add_losses(Operations& all) {
  for (const auto& [name, reduction] :
       {std::pair("none", Reduction::None), {"mean", Reduction::Mean}, {"sum", Reduction::Sum}}) {
    const std::string end = std::string(" ") + name;
    const Reduction r = reduction;
    const auto add = [&](const std::string& op, const Case& run) {
      all[op + end] = operation(run);
    };
    add("bce weighted", [=](const Named& in) {
      return binary_cross_entropy(in.at("x"), in.at("t"), in.at("w"), r);
    });
    add("bce logits weighted", [=](const Named& in) {
      return binary_cross_entropy_with_logits(in.at("x"), in.at("t"), in.at("w"), in.at("p"), r);
    });
    add("hinge_embedding_loss",
        [=](const Named& in) { return hinge_embedding_loss(in.at("x"), sign_of(in), 0.75, r); });
    add("soft_margin_loss",
        [=](const Named& in) { return soft_margin_loss(in.at("x"), sign_of(in), r); });
    add("margin_ranking_loss", [=](const Named& in) {
      return margin_ranking_loss(in.at("a"), in.at("b"), sign_of(in), 0.25, r);
    });
    add("poisson_nll_loss",
        [=](const Named& in) { return poisson_nll_loss(in.at("x"), in.at("t"), true, r); });
    add("poisson_nll_loss of rates",
        [=](const Named& in) { return poisson_nll_loss(in.at("x"), in.at("t"), false, r); });
    add("gaussian_nll_loss", [=](const Named& in) {
      return gaussian_nll_loss(in.at("x"), in.at("t"), in.at("v"), 0.5, r);
    });
    add("cosine_embedding_loss", [=](const Named& in) {
      return cosine_embedding_loss(in.at("a"), in.at("b"), sign_of(in), 0.1, r);
    });
    for (const bool swap : {false, true})
      all["triplet_margin_loss" + end + " " + std::to_string(swap)] =
          operation([=](const Named& in) {
            return triplet_margin_loss(in.at("a"), in.at("p"), in.at("n"),
                                       {.margin = 1.5, .swap = swap, .reduction = r});
          });
    add("cross_entropy of probabilities", [=](const Named& in) {
      return cross_entropy(in.at("x"), in.at("t"),
                           {.weight = in.at("w").detach(), .label_smoothing = 0.1, .reduction = r});
    });
    all["cross_entropy of probabilities" + end + " 1"] = operation(
        [=](const Named& in) { return cross_entropy(in.at("x"), in.at("t"), {.reduction = r}); });
  }
}

// A module without state, or with a weight and a bias, which are inputs, too.
template <class Module, class... Args>
void add_module(Operations& all, Args... args) {
  all["module " + Module(args...).type_name()] = operation([=](const Named& in) {
    Module module(args...);
    if constexpr (requires { module.weight; }) {
      module.weight = in.at("weight");
      module.bias = in.at("bias");
    }
    return module(in.at("x"));
  });
}

void add_modules(Operations& all) {
  using Widths = std::vector<int64_t>;
  add_module<nn::InstanceNorm2d>(all, 3, nn::InstanceNormOptions{.affine = true});
  add_module<nn::ReflectionPad2d>(all, Widths{2, 1, 0, 1});
  add_module<nn::ReplicationPad1d>(all, 2);
  add_module<nn::CircularPad2d>(all, 1);
  add_module<nn::ZeroPad2d>(all, Widths{1, -1, 0, 2});
  add_module<nn::ConstantPad2d>(all, 1, 1.5);
  add_module<nn::PixelShuffle>(all, 3);
  add_module<nn::Unfold>(all, UnfoldOptions{.kernel = 2, .stride = 2});
  add_module<nn::MaxPool2d>(all, nn::Pool2dOptions{.kernel = 2, .ceil_mode = true});
  add_module<nn::AvgPool2d>(
      all, nn::Pool2dOptions{
               .kernel = 3, .stride = 2, .padding = 1, .count_padding = false, .ceil_mode = true});
  add_module<nn::Hardtanh>(all, -0.5, 1.25);
  add_module<nn::GELU>(all, nn::GELUOptions{.approximate = nn::GELUApproximate::Tanh});
  add_module<nn::Softplus>(all, 2);
  add_module<nn::GLU>(all, 0);
  add_module<nn::Unflatten>(all, 1, Shape{2, -1});
}

Tensor flat(const std::vector<Tensor>& parts) {
  std::vector<Tensor> all;
  for (const Tensor& part : parts)
    if (part) all.push_back(reshape(part, {part.numel()}));
  return cat(all);
}

Tensor optional(const Named& in, const char* name) {
  return in.contains(name) ? in.at(name) : Tensor();
}

// Its weights are inputs of the case, which get no gradient.
template <class Module>
Module& with_weights(Module& module, const Named& in) {
  nn::NamedTensors state;
  for (const auto& [name, value] : module.state_dict()) state.emplace_back(name, in.at(name));
  module.to(state.at(0).second.dtype());
  module.load_state_dict(state);
  return module;
}

template <class Module, class... Args>
void add_recurrent(Operations& all, const char* name, Args... args) {
  all[name] = operation([=](const Named& in) {
    Module module(args...);
    with_weights(module, in);
    if constexpr (std::is_same_v<Module, nn::LSTM>) {
      const auto [y, state] = module(in.at("x"), {optional(in, "h"), optional(in, "c")});
      return flat({y, std::get<0>(state), std::get<1>(state)});
    } else {
      const auto [y, h] = module(in.at("x"), optional(in, "h"));
      return flat({y, h});
    }
  });
}

void add_recurrence(Operations& all) {
  for (const bool reverse : {false, true}) {
    const std::string end = " " + std::to_string(reverse);
    all["lstm_layer" + end] = operation([=](const Named& in) {
      const auto of = lstm_layer(in.at("x"), in.at("h"), in.at("c"), in.at("w"), reverse);
      return flat({of.y, of.h, of.c});
    });
    all["gru_layer" + end] = operation([=](const Named& in) {
      const auto of = gru_layer(in.at("x"), in.at("h"), in.at("w"), in.at("b"), reverse);
      return flat({of.y, of.h});
    });
    for (const auto& [kind, activation] :
         {std::pair("tanh", RecurrentActivation::Tanh), {"relu", RecurrentActivation::Relu}})
      all[std::string("rnn_layer ") + kind + end] =
          operation([=, activation = activation](const Named& in) {
            const auto of = rnn_layer(in.at("x"), in.at("h"), in.at("w"), activation, reverse);
            return flat({of.y, of.h});
          });
  }
  const nn::RecurrentOptions deep = {.num_layers = 2, .batch_first = true, .bidirectional = true};
  add_recurrent<nn::LSTM>(all, "LSTM", 3, 2);
  add_recurrent<nn::LSTM>(all, "LSTM deep", 3, 2, deep);
  add_recurrent<nn::LSTM>(all, "LSTM of one", 3, 2, nn::RecurrentOptions{.bias = false});
  add_recurrent<nn::GRU>(all, "GRU deep", 3, 2, deep);
  add_recurrent<nn::RNN>(all, "RNN", 3, 2, nn::RecurrentOptions{.num_layers = 2});
}

// The samples of tests/golden/make_ops.py's packed().
template <class Module, class... Args>
void add_packed(Operations& all, const char* name, bool batch_first, Args... args) {
  all[name] = [=](const nlohmann::json& given, const Named& in) -> Named {
    Module module(args...);
    with_weights(module, in);
    const Tensor lengths = tensor<int64_t>(given["lengths"].get<std::vector<int64_t>>());
    const nn::PackedSequence packed = nn::pack_padded_sequence(
        in.at("x"), lengths,
        {.batch_first = batch_first, .enforce_sorted = given["sorted"].get<bool>()});
    nn::PackedSequence y;
    std::vector<Tensor> states;
    if constexpr (std::is_same_v<Module, nn::LSTM>) {
      const auto [all_steps, state] = module(packed, {optional(in, "h"), optional(in, "c")});
      y = all_steps;
      states = {std::get<0>(state), std::get<1>(state)};
    } else {
      const auto [all_steps, state] = module(packed, optional(in, "h"));
      y = all_steps;
      states = {state};
    }
    const auto [padded, again] = nn::pad_packed_sequence(
        y, {.batch_first = batch_first, .padding_value = 0.5, .total_length = 6});
    if (!equal(lengths, again)) throw Error("pad_packed_sequence: other lengths");
    states.insert(states.begin(), padded);
    return {{"y", flat(states)}};
  };
}

void add_sequences(Operations& all) {
  const nn::RecurrentOptions deep = {.num_layers = 2, .bidirectional = true};
  nn::RecurrentOptions first = deep;
  first.batch_first = true;
  add_packed<nn::LSTM>(all, "packed LSTM", false, 3, 2);
  add_packed<nn::LSTM>(all, "packed LSTM deep", true, 3, 2, first);
  add_packed<nn::GRU>(all, "packed GRU deep", false, 3, 2, deep);
  add_packed<nn::RNN>(all, "packed RNN", false, 3, 2, nn::RecurrentOptions{.num_layers = 2});
  add_packed<nn::RNN>(all, "packed RNN relu", false, 3, 2,
                      nn::RecurrentOptions{.bidirectional = true}, RecurrentActivation::Relu);
  add_packed<nn::LSTM>(all, "packed LSTM dropped", false, 3, 2,
                       nn::RecurrentOptions{.num_layers = 2, .dropout = 1});
  const auto sequences = [](const Named& in) {
    return std::vector{in.at("a"), in.at("b"), in.at("c")};
  };
  all["pad_sequence"] = [=](const nlohmann::json& args, const Named& in) -> Named {
    return {{"y", nn::pad_sequence(sequences(in), args["batch_first"].get<bool>(), 0.25)}};
  };
  all["pack_sequence"] = [=](const nlohmann::json& args, const Named& in) -> Named {
    const nn::PackedSequence packed = nn::pack_sequence(sequences(in), false);
    if (packed.batch_sizes != args["batch_sizes"].get<std::vector<int64_t>>())
      throw Error("pack_sequence: other batch sizes");
    return {{"y", packed.data}};
  };
}

void add_attention(Operations& all) {
  for (const bool batch_first : {false, true})
    all["MultiheadAttention " + std::to_string(batch_first)] = operation([=](const Named& in) {
      nn::MultiheadAttention module(4, 2, {.batch_first = batch_first});
      with_weights(module, in);
      const auto [y, weights] =
          module(in.at("q"), in.at("k"), in.at("v"),
                 {.key_padding_mask = in.at("pad") > 0, .attn_mask = in.at("mask") > 0});
      const auto [again, none] = module(in.at("q"), in.at("k"), in.at("v"),
                                        {.key_padding_mask = in.at("pad") > 0,
                                         .need_weights = false,
                                         .attn_mask = in.at("mask") > 0});
      return flat({(y + again) * 0.5, weights, none});
    });
  for (const bool norm_first : {false, true})
    all["TransformerEncoderLayer " + std::to_string(norm_first)] = operation([=](const Named& in) {
      nn::TransformerEncoderLayer module(4, 2,
                                         {.dim_feedforward = 6,
                                          .dropout = 0,
                                          .activation = nn::TransformerActivation::Gelu,
                                          .batch_first = true,
                                          .norm_first = norm_first});
      with_weights(module, in);
      return module(in.at("x"), in.at("mask"));
    });
}

}  // namespace

void add_composed(Operations& all) {
  add_functions(all);
  add_shapes(all);
  add_products(all);
  add_losses(all);
  add_modules(all);
  add_recurrence(all);
  add_sequences(all);
  add_attention(all);
}

}  // namespace ringgrad::test
