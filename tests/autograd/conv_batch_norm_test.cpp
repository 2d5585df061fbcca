// A convolution and its batch norm as one node, and the gradients that the node after it sums for
// it: both have the bits of two nodes. On the CPU the kernels work in steps.
#include "ringgrad/autograd/conv_batch_norm.h"
#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/grad_hooks.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/core/random.h"
#include "ringgrad/models/resnet.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"
#include "ringgrad/tests/kernels/fusion_guard.h"

namespace ringgrad::test::conv_batch_norm_test {

namespace {

using Values = std::vector<double>;

struct Result {
  std::vector<Values> bits;
  int summed = 0;  // gradients
  int statistics = 0;
};

struct Options {
  DType dtype = DType::Float32;
  Layout layout = Layout::Strided;
  bool retains_grad = false;  // of the first layer's output
  bool used_twice = false;    // the first layer's output is the shortcut, too
  bool captures = false;      // grad() instead of backward()
  bool evaluates = false;
};

// Three layers; the last two are a residual block.
Result run(const Options& o) {
  constexpr int64_t C = 16;
  const auto leaf = [&](const Shape& shape, DType dtype, uint32_t seed) {
    return Tensor(random_tensor(shape, dtype, seed)).set_requires_grad();
  };
  Tensor x = to_layout(random_tensor({3, C, 5, 6}, o.dtype, 1), o.layout);
  x.set_requires_grad();
  const DType wide = accumulator_dtype(o.dtype);
  std::vector<Tensor> inputs = {x};
  std::vector<Tensor> running;
  const auto layer = [&](const Tensor& in, uint32_t seed, const Tensor& residual) {
    const Tensor w = leaf({C, C, 3, 3}, o.dtype, seed);
    const Tensor weight = leaf({C}, wide, seed + 1);
    const Tensor bias = leaf({C}, wide, seed + 2);
    inputs.insert(inputs.end(), {w, weight, bias});
    const Tensor mean = random_tensor({C}, wide, seed + 3);
    const Tensor var = random_tensor({C}, wide, seed + 4, 1, 2);
    const Tensor batches = zeros({}, {.dtype = DType::Int64});
    running.insert(running.end(), {mean, var, batches});
    return conv2d_batch_norm(in, w, {weight, bias, mean, var}, {.padding = 1},
                             {.training = !o.evaluates,
                              .activation = Activation::Relu,
                              .residual = residual,
                              .batches = batches});
  };
  const KernelProfile profile;
  const Tensor y = layer(x, 10, {});
  if (o.retains_grad) y.retain_grad();
  const Tensor h = layer(y, 20, {});
  const Tensor z = layer(h, 40, o.used_twice ? y : x);
  const Tensor dz = to_layout(random_tensor(z.shape(), o.dtype, 30), z.layout());
  Result result;
  if (o.captures) {
    std::vector<Tensor> wanted = inputs;
    wanted.push_back(y);
    for (const Tensor& g : autograd::grad({z}, wanted, {.grad_outputs = {dz}}))
      result.bits.push_back(values(g));
  } else {
    z.backward(dz);
    for (const Tensor& t : inputs) result.bits.push_back(values(t.grad()));
  }
  if (o.retains_grad) result.bits.push_back(values(y.grad()));
  for (const Tensor& t : running) result.bits.push_back(values(t));
  result.bits.push_back(values(z));
  for (const KernelCall& call : profile.calls()) {
    result.summed += std::string(call.kernel) == "conv2d_backward_batch_sums";
    result.statistics += std::string(call.kernel) == "conv2d_batch_stats";
  }
  return result;
}

Result check(const Options& options) {
  const auto with = [&](Fusion statistics, Fusion gradients) {
    const FusionGuard guard(statistics, gradients);
    return run(options);
  };
  const Result two = with(Fusion::Never, Fusion::Never);
  CHECK(two.summed == 0);
  CHECK(two.statistics == 0);
  const Result statistics = with(Fusion::Always, Fusion::Never);
  const Result gradients = with(Fusion::Never, Fusion::Always);
  const Result both = with(Fusion::Always, Fusion::Always);
  CHECK(statistics.bits == two.bits);
  CHECK(gradients.bits == two.bits);
  CHECK(both.bits == two.bits);
  CHECK(statistics.statistics == (options.evaluates ? 0 : 3));
  CHECK(statistics.summed == 0);
  CHECK(gradients.statistics == 0);
  CHECK(gradients.summed == both.summed);
  return both;
}

}  // namespace

TEST_CASE("a convolution and its batch norm as one node have the bits of two", "[quick]") {
  const ProviderGuard ours(Provider::Native);
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16})
    for (const Layout layout : {Layout::Strided, Layout::ChannelsLast, Layout::ChannelBlocked}) {
      INFO(dtype << ", layout " << static_cast<int>(layout));
      CHECK(check({.dtype = dtype, .layout = layout}).summed == 2);
    }
}

// The shortcut's gradient has arrived before, so the sum with it is complete.
TEST_CASE("a gradient is summed with the shortcut's", "[quick]") {
  CHECK(check({.used_twice = true}).summed == 2);
}

TEST_CASE("a gradient that others see is not rectified before they do", "[quick]") {
  CHECK(check({.retains_grad = true}).summed == 1);
  CHECK(check({.captures = true}).summed == 0);
}

TEST_CASE("evaluation is two nodes", "[quick]") { CHECK(check({.evaluates = true}).summed == 0); }

// Another gradient arrives after the sums, so they are those of a part.
TEST_CASE("sums of a gradient that is not complete are computed again", "[quick]") {
  const auto gradients = [](Fusion fusion) {
    const FusionGuard guard(Fusion::Always, fusion);
    const Tensor x = random_tensor({2, 16, 4, 4}, DType::Float32, 1);
    Tensor weight = random_tensor({16}, DType::Float32, 2);
    weight.set_requires_grad();
    Tensor w = random_tensor({16, 16, 3, 3}, DType::Float32, 3);
    w.set_requires_grad();
    const BatchNormOptions relu{.activation = Activation::Relu};
    const Tensor y = conv2d_batch_norm(x, w, {weight}, {.padding = 1}, relu);
    const Tensor older = mul(y, 3);  // runs after the convolution below
    const Tensor z = conv2d_batch_norm(y, w, {weight}, {.padding = 1}, relu);
    sum(add(mul(z, z), older)).backward();
    return std::vector<Values>{values(w.grad()), values(weight.grad())};
  };
  CHECK(gradients(Fusion::Always) == gradients(Fusion::Never));
}

namespace {

struct Leaves {
  Tensor x = random_tensor({2, 16, 4, 4}, DType::Float32, 1);
  Tensor w = Tensor(random_tensor({16, 16, 3, 3}, DType::Float32, 2)).set_requires_grad();
  Tensor weight = Tensor(random_tensor({16}, DType::Float32, 3)).set_requires_grad();

  Tensor layer(const Tensor& in) const {
    return conv2d_batch_norm(in, w, {weight}, {.padding = 1}, {.activation = Activation::Relu});
  }
};

int count(const KernelProfile& profile, const std::string& kernel) {
  const std::vector<KernelCall> calls = profile.calls();
  return static_cast<int>(std::count_if(
      calls.begin(), calls.end(), [&](const KernelCall& call) { return call.kernel == kernel; }));
}

}  // namespace

TEST_CASE("sums that a pass has left when it threw are not used", "[quick]") {
  const auto gradient = [](Fusion fusion) {
    const FusionGuard guard(Fusion::Always, fusion);
    const Leaves l;
    const Tensor y = l.layer(l.x);
    const Tensor w = Tensor(random_tensor({16, 16, 3, 3}, DType::Float32, 4)).set_requires_grad();
    w.register_hook([](const Tensor&) -> Tensor { throw Error("no more of this"); });
    const Tensor z = conv2d_batch_norm(y, w, {}, {.padding = 1}, {.activation = Activation::Relu});
    const auto zero_gradient = [&] {
      Tensor(l.weight).set_grad(zeros({16}));
      zeros_known({l.weight});
    };
    zero_gradient();
    const KernelProfile profile;
    CHECK_THROWS_AS(sum(z).backward(), Error);
    CHECK(count(profile, "conv2d_backward_batch_sums") == (fusion == Fusion::Always));
    zero_gradient();
    sum(mul(y, y)).backward();
    return values(l.weight.grad());
  };
  CHECK(gradient(Fusion::Always) == gradient(Fusion::Never));
}

TEST_CASE("a hook that has been removed sees nothing", "[quick]") {
  const FusionGuard guard(Fusion::Always, Fusion::Always);
  const Leaves l;
  const Tensor y = l.layer(l.x);
  y.register_hook([](const Tensor&) { return Tensor(); }).remove();
  const KernelProfile profile;
  sum(l.layer(y)).backward();
  CHECK(count(profile, "conv2d_backward_batch_sums") == 1);
}

// conv2d() keeps its images for the gradient of its weights only.
TEST_CASE("frozen weights of a convolution keep no images", "[quick]") {
  const FusionGuard guard(Fusion::Always, Fusion::Always);
  Leaves l;
  l.w.set_requires_grad(false);
  const Tensor x = mul(l.x.set_requires_grad(), 2);
  const KernelProfile profile;
  const Tensor y = l.layer(x);
  CHECK(count(profile, "conv2d_batch_stats") == 0);
  kernels::fill(x.detach(), 0);
  begin_write("the test", x.detach());
  sum(y).backward();
}

TEST_CASE("weights that changed after a first layer do not matter", "[quick]") {
  const FusionGuard guard(Fusion::Always, Fusion::Always);
  const Leaves l;
  const Tensor y = l.layer(l.x);
  begin_write("the test", l.w.detach());
  sum(y).backward();
  CHECK(l.w.grad().defined());
}

TEST_CASE("autocast casts the input once", "[quick]") {
  const Leaves l;
  const auto casts = [&](const auto& f) {
    const AutocastGuard autocast(DType::BFloat16);
    const KernelProfile profile;
    f();
    return count(profile, "copy");
  };
  const int two = casts([&] {
    batch_norm(conv2d(l.x, l.w, {}, {.padding = 1}), l.weight, {}, {}, {},
               {.activation = Activation::Relu});
  });
  CHECK(two > 0);
  CHECK(casts([&] { l.layer(l.x); }) == two);
}

TEST_CASE("a profile names the convolution in the kernel that also sums", "[quick]") {
  const ProviderGuard ours(Provider::Native);
  const FusionGuard guard(Fusion::Always, Fusion::Always);
  const Leaves l;
  const KernelProfile profile;
  sum(l.layer(l.layer(l.x))).backward();
  for (const KernelCall& call : profile.calls())
    if (const std::string kernel = call.kernel;
        kernel == "conv2d_batch_stats" || kernel == "conv2d_backward_batch_sums")
      CHECK(call.plan == "Winograd F(4, 3)");
}

TEST_CASE("a convolution and its batch norm refuse what the two refuse", "[quick]") {
  const FusionGuard guard(Fusion::Always, Fusion::Always);
  const Tensor x = zeros({2, 3, 4, 4});
  const Tensor w = zeros({5, 3, 3, 3});
  require_error<ShapeError>("conv2d: the input is [2, 3, 4, 4], the weight [5, 4, 3, 3]", [&] {
    conv2d_batch_norm(x, zeros({5, 4, 3, 3}), {});
  });
  require_error<ShapeError>("batch_norm: the weight has shape [4]",
                            [&] { conv2d_batch_norm(x, w, {ones({4})}); });
  require_error<ShapeError>("does not fit into the input", [&] {
    conv2d_batch_norm(x, zeros({5, 3, 5, 5}), {});
  });
  require_error<ShapeError>("one value per channel", [&] {
    conv2d_batch_norm(zeros({1, 3, 4, 4}), zeros({5, 3, 3, 3}), {}, {.stride = 4});
  });
}

namespace {

// A step of a network: its gradients and running statistics, and how many convolutions summed.
Result step(Fusion fusion, bool hook) {
  const FusionGuard guard(fusion, fusion);
  manual_seed(1);
  models::ResNet network(18, {.num_classes = 3, .stem = models::Stem::Cifar});
  if (hook)
    for (const auto& [name, module] : network.named_modules())
      if (name.ends_with("conv2"))
        module->register_forward_hook(
            [](nn::Module&, const Tensor&, const Tensor& y) { return mul(y, 0.5); });
  const KernelProfile profile;
  sum(network(random_tensor({2, 3, 8, 8}, DType::Float32, 1))).backward();
  Result result;
  for (const Tensor& t : network.parameters()) result.bits.push_back(values(t.grad()));
  for (const Tensor& t : network.buffers()) result.bits.push_back(values(t));
  for (const KernelCall& call : profile.calls()) {
    result.summed += std::string(call.kernel) == "conv2d_backward_batch_sums";
    result.statistics += std::string(call.kernel) == "conv2d_batch_stats";
  }
  return result;
}

}  // namespace

TEST_CASE("a network's convolutions and batch norms are one node where that is chosen") {
  const ProviderGuard ours(Provider::Native);
  const Result two = step(Fusion::Never, false);
  const Result one = step(Fusion::Always, false);
  CHECK(one.bits == two.bits);
  CHECK(two.statistics == 0);
  CHECK(one.statistics == 17);  // all but the projections'
  CHECK(one.summed == 16);      // all but the last block's output
  // A hook sees the convolution's result, so there must be one.
  const Result hooked = step(Fusion::Always, true);
  CHECK(hooked.bits == step(Fusion::Never, true).bits);
  CHECK(hooked.bits != two.bits);
  CHECK(hooked.statistics == 9);
}

}  // namespace ringgrad::test::conv_batch_norm_test
