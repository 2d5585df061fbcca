// The operations of tests/golden/tensor_ops.py, under the same names.
#include <array>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/layers.h"
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
Operation of_pair(const std::function<Tensor(const Tensor&, const Tensor&)>& run,
                  const char* a = "a", const char* b = "b") {
  return operation([=](const Named& in) { return run(in.at(a), in.at(b)); });
}
Operation with_indices(const std::function<ValuesAndIndices(const Tensor&)>& run) {
  return [run](const nlohmann::json&, const Named& in) -> Named {
    const auto [values, indices] = run(in.at("x"));
    return {{"y", values}, {"others", indices}};
  };
}

// Parts in turn, the first once, the second twice …
Tensor weighted(const std::vector<Tensor>& parts, int dim) {
  std::vector<Tensor> all;
  for (const Tensor& part : parts) all.push_back(part * static_cast<double>(all.size() + 1));
  return cat(all, dim);
}

void add_reductions(Operations& all) {
  const std::array<std::pair<const char*, Dims>, 4> dims = {
      {{"[]", {}}, {"[0]", 0}, {"[1]", 1}, {"[-1, 0]", {-1, 0}}}};
  for (const auto& [key, d] : dims) {
    const std::string name = key;
    all["any " + name] = of_x([d = d](const Tensor& x) { return (x > 0).any(d); });
    all["all " + name] = of_x([d = d](const Tensor& x) { return (x > 0).all(d); });
    all["std " + name] = of_x([d = d](const Tensor& x) { return x.std(d); });
    for (const auto& [p_name, p] : {std::pair("1", 1.0), {"2", 2.0}, {"3", 3.0}, {"inf", INFINITY}})
      all[std::string("norm ") + p_name + " " + name] =
          of_x([d = d, p = p](const Tensor& x) { return x.norm(p, d); });
  }
}

void add_losses(Operations& all) {
  using Loss = Tensor (*)(const Tensor&, const Tensor&, Reduction);
  const auto with_constant = [](Loss loss, Reduction r, const std::vector<double>& target) {
    return of_x([=](const Tensor& x) { return loss(x, to(tensor(target), x.dtype()), r); });
  };
  const Loss kl = [](const Tensor& x, const Tensor& t, Reduction r) { return kl_div(x, t, r); };
  for (const auto& [name, r] :
       {std::pair("none", Reduction::None), {"mean", Reduction::Mean}, {"sum", Reduction::Sum}}) {
    const std::string end = std::string(" ") + name;
    const auto add = [&, r = r](const std::string& op, auto loss) {
      all[op + end] =
          of_pair([=](const Tensor& x, const Tensor& t) { return loss(x, t, r); }, "x", "t");
    };
    add("l1_loss", l1_loss);
    add("huber_loss",
        [](const Tensor& x, const Tensor& t, Reduction r) { return huber_loss(x, t, 0.75, r); });
    add("smooth_l1_loss", [](const Tensor& x, const Tensor& t, Reduction r) {
      return smooth_l1_loss(x, t, 0.75, r);
    });
    add("binary_cross_entropy", Loss(binary_cross_entropy));
    add("kl_div", kl);
    add("kl_div log",
        [](const Tensor& x, const Tensor& t, Reduction r) { return kl_div(x, t, r, true); });
    all["binary_cross_entropy at the ends" + end] =
        with_constant(binary_cross_entropy, r, {0, 1, 0.5, 0, 1, 0.25, 1, 0});
    all["kl_div of zeros" + end] = with_constant(kl, r, {0, 0.5, 0, 1});
  }
}

void add_images(Operations& all) {
  for (const auto& [h, w] : {std::pair(4, 6), {5, 3}, {2, 7}, {1, 1}}) {
    const std::string size = std::to_string(h) + " " + std::to_string(w);
    const auto add = [&, to = Pair(h, w)](const std::string& name, UpsampleOptions options) {
      all[name + " " + size] = of_x([=](const Tensor& x) { return upsample(x, to, options); });
    };
    add("nearest", {});
    add("bilinear", {.mode = UpsampleMode::Bilinear});
    add("corners", {.mode = UpsampleMode::Bilinear, .align_corners = true});
  }
  all["conv1d"] = operation([](const Named& in) {
    return conv1d(in.at("x"), in.at("w"), in.at("b"),
                  {.stride = 2, .padding = 1, .dilation = 2, .groups = 2});
  });
  all["group_norm"] = operation(
      [](const Named& in) { return group_norm(in.at("x"), 2, in.at("w"), in.at("b"), 1e-5); });
}

// A module, whose parameters are inputs, too.
template <class Module, class... Args>
void add_module(Operations& all, Args... args) {
  all["module " + Module(args...).type_name()] = operation([=](const Named& in) {
    Module module(args...);
    module.to(in.contains("weight") ? in.at("weight").dtype() : in.at("x").dtype());
    if constexpr (requires { module.weight; }) module.weight = in.at("weight");
    if constexpr (requires { module.bias; })
      if (in.contains("bias")) module.bias = in.at("bias");
    return module(in.at("x"));
  });
}

void add_modules(Operations& all) {
  add_module<nn::Conv1d>(all, 4, 6, 3, nn::Conv1dOptions{.stride = 2, .padding = 1, .groups = 2});
  add_module<nn::GroupNorm>(all, 2, 4, nn::GroupNormOptions{.eps = 1e-3});
  add_module<nn::LayerNorm>(all, Shape{3, 2}, nn::LayerNormOptions{.bias = false});
  add_module<nn::BatchNorm1d>(all, 3);
  add_module<nn::PReLU>(all, 3);
  add_module<nn::ELU>(all, 0.5);
  add_module<nn::LeakyReLU>(all, 0.2);
  add_module<nn::Softmax>(all, 0);
  add_module<nn::LogSoftmax>(all, 1);
  add_module<nn::Upsample>(
      all, nn::UpsampleOptions{.scale_factor = 1.5, .mode = UpsampleMode::Bilinear});
  add_module<nn::Embedding>(all, 5, 3, nn::EmbeddingOptions{.padding_idx = -1});
}

void add_indices(Operations& all) {
  const auto at = [&](const char* name, auto index_of) {
    all[name] = operation([=](const Named& in) { return in.at("x").index(index_of(in)); });
  };
  using At = std::vector<Index>;
  at("index pairs", [](const Named& in) { return At{in.at("i"), in.at("j")}; });
  at("index in front", [](const Named& in) { return At{in.at("i"), Slice(), in.at("j")}; });
  at("index behind", [](const Named& in) { return At{Slice(), in.at("i"), in.at("j")}; });
  at("index of rows", [](const Named& in) { return At{Slice(), in.at("i")}; });
  at("index by mask", [](const Named& in) { return At{Slice(), in.at("m") > 0}; });
  at("index by mask and place", [](const Named& in) { return At{in.at("m") > 0, Ellipsis, 1}; });
  for (const bool accumulate : {false, true})
    all["index_put " + std::to_string(accumulate)] = operation([=](const Named& in) {
      return index_put(in.at("x"), {in.at("i"), in.at("j")}, in.at("v"), accumulate);
    });
  all["index_put twice"] = operation(
      [](const Named& in) { return index_put(in.at("x"), {in.at("i")}, in.at("v"), true); });
}

void add_parts(Operations& all) {
  all["chunk"] = of_x([](const Tensor& x) { return weighted(x.chunk(3, 1), 1); });
  all["split"] = of_x([](const Tensor& x) { return weighted(x.split(2), 0); });
  all["repeat"] = of_x([](const Tensor& x) { return x.repeat({2, 1, 3}); });
  all["select"] = of_x([](const Tensor& x) { return x.select(1, -2); });
  all["index"] = of_x([](const Tensor& x) { return x.index({0, Ellipsis, None, Slice(1, 3)}); });
  all["tril"] = of_x([](const Tensor& x) { return tril(x, 1); });
  all["triu"] = of_x([](const Tensor& x) { return triu(x, -1); });
  all["scatter_add"] =
      operation([](const Named& in) { return scatter_add(in.at("x"), 0, in.at("i"), in.at("v")); });
  all["scatter"] =
      operation([](const Named& in) { return scatter(in.at("x"), 1, in.at("i"), in.at("v")); });
  all["index_add"] =
      operation([](const Named& in) { return index_add(in.at("x"), 1, in.at("i"), in.at("v")); });
  all["embedding"] =
      of_pair([](const Tensor& i, const Tensor& w) { return embedding(i, w, 1); }, "i", "w");
  for (const char* equation :
       {"ij,jk->ik", "bij,bkj->bki", "i,j->ij", "ij,ij->", "bhqd,bhkd->bhqk", "ijk,j->i", "ij,jk"})
    all[std::string("einsum ") + equation] =
        of_pair([=](const Tensor& a, const Tensor& b) { return einsum(equation, a, b); });
}

Operations make() {
  Operations all = {
      {"sin", of_x(sin)},
      {"cos", of_x(cos)},
      {"square", of_x(square)},
      {"log1p", of_x(log1p)},
      {"elu", of_x([](const Tensor& x) { return elu(x, 0.75); })},
      {"softplus", of_x([](const Tensor& x) { return softplus(x, 1.5); })},
      {"prelu", of_pair(prelu, "x", "w")},
      {"minimum", of_pair(minimum)},
      {"lt", of_pair([](const Tensor& a, const Tensor& b) { return a < b; })},
      {"le", of_pair([](const Tensor& a, const Tensor& b) { return a <= b; })},
      {"gt", of_pair([](const Tensor& a, const Tensor& b) { return a > b; })},
      {"ge", of_pair([](const Tensor& a, const Tensor& b) { return a >= b; })},
      {"eq", of_pair([](const Tensor& a, const Tensor& b) { return a == b; })},
      {"ne", of_pair([](const Tensor& a, const Tensor& b) { return a != b; })},
      {"where",
       operation([](const Named& in) { return where(in.at("c") > 0, in.at("a"), in.at("b")); })},
      {"masked_fill",
       of_pair([](const Tensor& x, const Tensor& c) { return x.masked_fill(c != 0, -1.5); }, "x",
               "c")},
      {"masked_select",
       of_pair([](const Tensor& x, const Tensor& c) { return x.index({c != 0}); }, "x", "c")},
      {"logsumexp", of_x([](const Tensor& x) { return logsumexp(x, -1); })},
      {"argmin", of_x([](const Tensor& x) { return x.argmin(1); })},
      {"argmax of all", of_x([](const Tensor& x) { return x.argmax(); })},
      {"cumsum 0", of_x([](const Tensor& x) { return x.cumsum(0); })},
      {"cumsum 1", of_x([](const Tensor& x) { return x.cumsum(1); })},
      {"topk 0", with_indices([](const Tensor& x) { return x.topk(2, 1, false); })},
      {"topk 1", with_indices([](const Tensor& x) { return x.topk(2, 1); })},
  };
  for (int dim : {0, 1})
    for (bool descending : {false, true})
      all["sort " + std::to_string(dim) + " " + std::to_string(descending)] =
          with_indices([=](const Tensor& x) { return x.sort(dim, descending); });
  add_reductions(all);
  add_losses(all);
  add_images(all);
  add_parts(all);
  add_indices(all);
  add_modules(all);
  add_composed(all);
  return all;
}

}  // namespace

const Operations& tensor_operations() {
  static const Operations all = make();
  return all;
}

}  // namespace ringgrad::test
