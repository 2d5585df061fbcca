// Losses that contain gradients, as programs have them: a critic's gradient penalty, a
// discriminator's R1 penalty, products of a Hessian with a vector, and MAML's inner loop. Their
// gradients are PyTorch's in float64 (tests/golden/make_second_order.py has the twins), and under
// data parallelism, too: what is averaged is the gradient of the outer loss.
#include <cmath>
#include <map>
#include <numbers>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/nn/module.h"
#include "ringgrad/nn/recompute.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/golden/golden.h"
#include "ringgrad/tests/golden/hashed_weights.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::second_order_test {

namespace {

constexpr TensorOptions kWide = {.dtype = DType::Float64};

Tensor values(const std::string& name, const Shape& shape, double scale = 1) {
  std::vector<double> all;
  for (int64_t i = 0; i < shape.numel(); ++i) all.push_back(scale * hashed_uniform(name, i));
  return tensor(all, shape);
}

// By name, in the order of the script.
struct Weights {
  std::vector<std::string> names;
  std::map<std::string, Tensor> at;

  explicit Weights(const std::vector<std::pair<std::string, Shape>>& shapes) {
    for (const auto& [name, shape] : shapes) {
      double scale = 0.3;
      if (shape.dim() > 1)
        scale = 1 / std::sqrt(static_cast<double>(shape.numel()) / static_cast<double>(shape[0]));
      names.push_back(name);
      at[name] = values(name, shape, scale);
      at[name].set_requires_grad();
    }
  }
  const Tensor& operator[](const std::string& name) const { return at.at(name); }
  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors;
    for (const std::string& name : names) tensors.push_back(at.at(name));
    return tensors;
  }
};

void check_gradients(const std::string& program, const Tensor& loss, const Weights& p) {
  INFO(program);
  static const nlohmann::json golden = load_golden("second_order.json");
  const nlohmann::json& want = golden.at(program);
  CHECK(std::abs(loss.item<double>() - want.at("loss").get<double>()) <= 1e-10);
  for (const std::string& name : p.names) {
    INFO(name);
    const auto gradient = want.at("gradients").at(name).get<std::vector<double>>();
    const std::vector<double> own = to_vector<double>(p[name].grad());
    REQUIRE(own.size() == gradient.size());
    double worst = 0;
    for (size_t i = 0; i < own.size(); ++i) worst = std::max(worst, std::abs(own[i] - gradient[i]));
    CHECK(worst <= 1e-10);
  }
}

// ---- Gulrajani et al. 2017 ----------------------------------------------------------------------

const std::vector<std::pair<std::string, Shape>> kCritic = {
    {"c1.w", {6, 3, 4, 4}}, {"c1.b", {6}},      {"c2.w", {8, 6, 4, 4}}, {"c2.b", {8}},
    {"n.w", {8, 2, 2}},     {"n.b", {8, 2, 2}}, {"l.w", {1, 32}},       {"l.b", {1}},
};
Tensor critic(const Weights& p, const Tensor& x) {
  const Conv2dOptions halving = {.stride = 2, .padding = 1};
  Tensor h = leaky_relu(conv2d(x, p["c1.w"], p["c1.b"], halving), 0.2);
  h = conv2d(h, p["c2.w"], p["c2.b"], halving);
  h = leaky_relu(layer_norm(h, {8, 2, 2}, p["n.w"], p["n.b"]), 0.2);
  return linear(flatten(h, 1), p["l.w"], p["l.b"]);
}

// The samples [begin, end) of the four.
template <class Critic>
Tensor wasserstein_loss(Critic score, int64_t begin, int64_t end) {
  const auto samples = [&](const Tensor& all) { return slice(all, 0, begin, end); };
  const Tensor real = samples(values("real", {4, 3, 8, 8}));
  const Tensor fake = samples(values("fake", {4, 3, 8, 8}));
  const Tensor alpha = samples(values("alpha", {4, 1, 1, 1})) * 0.5 + 0.5;
  const Tensor between = alpha * real + (1 - alpha) * fake;
  between.set_requires_grad();
  const Tensor slope = autograd::grad({sum(score(between))}, {between}, {.create_graph = true})[0];
  const Tensor penalty = mean(square(norm(flatten(slope, 1), 2, 1) - 1));
  return mean(score(fake)) - mean(score(real)) + penalty * 10;
}

struct Critic : nn::Module {
  Weights p{kCritic};
  Critic() {
    for (const std::string& name : p.names) {
      std::string own = name;
      std::replace(own.begin(), own.end(), '.', '_');
      register_parameter(own, p.at[name]);
    }
  }
  Tensor forward(const Tensor& x) override { return critic(p, x); }
};

// ---- Mescheder et al. 2018 ----------------------------------------------------------------------

const std::vector<std::pair<std::string, Shape>> kDiscriminator = {
    {"c.w", {4, 3, 3, 3}}, {"c.b", {4}}, {"g.w", {4}},     {"g.b", {4}}, {"d.w", {6, 4, 3, 3}},
    {"b.w", {6}},          {"b.b", {6}}, {"l.w", {1, 24}}, {"l.b", {1}},
};
Tensor discriminator(const Weights& p, const Tensor& x) {
  Tensor h = conv2d(x, p["c.w"], p["c.b"], {.padding = 1});
  h = tanh(group_norm(h, 2, p["g.w"], p["g.b"]));
  h = conv2d(avg_pool2d(h, {.kernel = 2}), p["d.w"], {}, {.padding = 1});
  h = max_pool2d(silu(batch_norm(h, p["b.w"], p["b.b"], {}, {})), {.kernel = 2});
  return linear(flatten(h, 1), p["l.w"], p["l.b"]);
}

Tensor r1_loss(const std::function<Tensor(const Tensor&)>& score_of) {
  const Tensor real = values("real", {4, 3, 8, 8});
  real.set_requires_grad();
  const Tensor score = score_of(real);
  const Tensor slope = autograd::grad({sum(score)}, {real}, {.create_graph = true})[0];
  return mean(softplus(-score)) + mean(sum(square(slope), {1, 2, 3})) * 5;
}

// ---- Finn et al. 2017 ---------------------------------------------------------------------------

Tensor sine(const std::vector<Tensor>& p, const Tensor& x) {
  return linear(relu(linear(relu(linear(x, p[0], p[1])), p[2], p[3])), p[4], p[5]);
}

}  // namespace

TEST_CASE("the gradient penalty of WGAN-GP is PyTorch's", "[autograd][quick]") {
  const Weights p(kCritic);
  const Tensor loss = wasserstein_loss([&](const Tensor& x) { return critic(p, x); }, 0, 4);
  loss.backward();
  check_gradients("wgan_gp", loss, p);
}

TEST_CASE("the gradient penalty of WGAN-GP on two ranks is that of the whole batch",
          "[autograd][quick][threads]") {
  const Weights p(kCritic);
  run_ddp_ranks(2, [&](ProcessGroup& group) {
    Critic network;
    DistributedDataParallel ddp(network, group);
    const int64_t begin = 2 * group.rank();
    const Tensor loss = wasserstein_loss([&](const Tensor& x) { return ddp(x); }, begin, begin + 2);
    loss.backward();
    if (group.rank() == 0)
      for (const std::string& name : p.names) p[name].set_grad(clone(network.p[name].grad()));
    must_be_refused(group, "distributed_data_parallel: create_graph", [&] {
      autograd::backward(sum(ddp(values("real", {2, 3, 8, 8}))), {.create_graph = true});
    });
  });
  const Tensor loss = wasserstein_loss([&](const Tensor& x) { return critic(p, x); }, 0, 4);
  check_gradients("wgan_gp", loss, p);
}

TEST_CASE("the R1 penalty is PyTorch's, with activations computed again, too",
          "[autograd][quick]") {
  for (const bool again : {false, true}) {
    const Weights p(kDiscriminator);
    const auto score = [&](const Tensor& x) { return discriminator(p, x); };
    const Tensor loss =
        r1_loss([&](const Tensor& x) { return again ? nn::checkpoint(score, x) : score(x); });
    loss.backward();
    check_gradients("r1", loss, p);
  }
}

TEST_CASE("a product of a Hessian with a vector is PyTorch's", "[autograd][quick]") {
  const Weights p(
      {{"l1.w", {7, 5}}, {"l1.b", {7}}, {"l2.w", {6, 7}}, {"l2.b", {6}}, {"l3.w", {4, 6}}});
  Tensor h = tanh(linear(values("x", {6, 5}), p["l1.w"], p["l1.b"]));
  h = linear(gelu(linear(h, p["l2.w"], p["l2.b"])), p["l3.w"]);
  const Tensor loss =
      cross_entropy(h, tensor<int64_t>({0, 3, 1, 2, 2, 0}), {.label_smoothing = 0.1});
  const std::vector<Tensor> first = autograd::grad({loss}, p.all(), {.create_graph = true});
  Tensor along = zeros({}, kWide);
  for (size_t i = 0; i < first.size(); ++i)
    along = along + sum(first[i] * values("v." + p.names[i], first[i].shape()));
  const std::vector<Tensor> products = autograd::grad({along}, p.all());
  for (size_t i = 0; i < products.size(); ++i) p[p.names[i]].set_grad(products[i]);
  check_gradients("hessian_vector", along, p);
}

TEST_CASE("the gradient through MAML's inner loop is PyTorch's", "[autograd][quick]") {
  const Weights p({{"l1.w", {9, 1}},
                   {"l1.b", {9}},
                   {"l2.w", {8, 9}},
                   {"l2.b", {8}},
                   {"l3.w", {1, 8}},
                   {"l3.b", {1}}});
  Tensor total = zeros({}, kWide);
  for (int task = 0; task < 3; ++task) {
    const std::string name = "task" + std::to_string(task) + ".";
    const Tensor amplitude = values(name + "amplitude", {1}) + 2;
    const Tensor phase = values(name + "phase", {1}, std::numbers::pi);
    const Tensor support = values(name + "support", {5, 1}, 5);
    const Tensor query = values(name + "query", {5, 1}, 5);
    const auto loss_of = [&](const std::vector<Tensor>& weights, const Tensor& x) {
      return mse_loss(sine(weights, x), amplitude * sin(x + phase));
    };
    std::vector<Tensor> fast = p.all();
    for (int step = 0; step < 2; ++step) {
      const std::vector<Tensor> slopes =
          autograd::grad({loss_of(fast, support)}, fast, {.create_graph = true});
      for (size_t i = 0; i < fast.size(); ++i) fast[i] = fast[i] - slopes[i] * 0.05;
    }
    total = total + loss_of(fast, query);
  }
  const Tensor loss = total / 3;
  loss.backward();
  check_gradients("maml", loss, p);
}

}  // namespace ringgrad::test::second_order_test
