// Activations that are used twice, such as the inputs of residual blocks. A convolution starts its
// own sum with the gradient that already waits. The result must be that of a kernel that adds the
// two, with one rounding less.
#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/grad_hooks.h"
#include "ringgrad/autograd/gradcheck.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/tests/kernels/cpu_kernels.h"

namespace ringgrad::test::waiting_gradient_test {

namespace {

using Values = std::vector<double>;

// Returns h itself. An operation that uses this instead of h gives its gradient to a node of its
// own, so the engine adds it to the others.
Tensor apart(const Tensor& h) {
  return differentiable("apart", {h}, copy_of(h, h.options()),
                        [](const Tensor& dy) -> Gradients { return {dy}; });
}

// A residual block with input h. `halves` is set for a block that halves the images.
struct Block {
  bool halves;
  Tensor x;
  Tensor h;
  Tensor w;
  Tensor shortcut;
  Tensor dy;

  Block(bool halves, DType dtype, Device device, int64_t channels) : halves(halves) {
    const auto random = [&](const Shape& shape, uint32_t seed) {
      return to(random_tensor(shape, dtype, seed), device);
    };
    const int64_t filters = halves ? 2 * channels : channels;
    x = Tensor(random({3, channels, 9, 10}, 1)).set_requires_grad();
    h = conv2d(x, random({channels, channels, 1, 1}, 2));  // in the layout that convolutions take
    h.retain_grad();
    w = random({filters, channels, 3, 3}, 3);
    shortcut = random({filters, channels, 1, 1}, 4);
    dy = to_layout(random({3, filters, halves ? 5 : 9, halves ? 5 : 10}, 5), h.layout());
  }
  int64_t terms() const { return 9 * w.size(0); }  // the number of terms of the longest sum

  // The gradient of h, and how many kernels did nothing but add gradients.
  std::pair<Values, int> gradient(bool fused) const {
    const Pair stride = halves ? 2 : 1;
    const auto used = [&] { return fused ? h : apart(h); };
    const Tensor rest = halves ? conv2d(used(), shortcut, {}, {.stride = stride}) : h;
    const Tensor y = conv2d(used(), w, {}, {.stride = stride, .padding = 1}) + rest;
    for (const Tensor& t : {x, h}) t.set_grad({});
    const KernelProfile profile;
    y.backward(dy, true);
    int sums = 0;
    for (const KernelCall& call : profile.calls()) sums += std::string(call.kernel) == "add";
    return {to_vector<double>(h.grad()), sums};
  }
};

void check_block(bool halves, DType dtype, Device device, int64_t channels) {
  INFO(dtype << " on " << device << ", " << channels << " channels" << (halves ? ", halved" : ""));
  const ProviderGuard ours(Provider::Native);
  const Block block(halves, dtype, device, channels);
  const auto [fused, no_sums] = block.gradient(true);
  const auto [apart, sums] = block.gradient(false);
  CHECK(no_sums == 0);
  CHECK(sums == 1);
  // One of the two is rounded once more if they are added separately, and a sum may begin
  // elsewhere: see Note [Tolerances].
  double largest = 0;
  double error = 0;
  for (size_t i = 0; i < apart.size(); ++i) {
    largest = std::max(largest, std::abs(apart[i]));
    error = std::max(error, std::abs(fused[i] - apart[i]));
  }
  const DType summed = dtype == DType::Float64 ? dtype : DType::Float32;
  const double order =
      machine_epsilon(summed) * (4 + 2 * std::sqrt(static_cast<double>(block.terms())));
  CHECK(largest > 1);
  CHECK(error <= (machine_epsilon(dtype) + order) * largest);
  CHECK(block.gradient(true).first == fused);
}

void check_blocks(DType dtype, Device device, int64_t channels) {
  for (const bool halves : {false, true}) check_block(halves, dtype, device, channels);
}

}  // namespace

TEST_CASE("a convolution begins the gradient of its input with the one that waits",
          "[quick][engine]") {
  for (const ConvAlgorithm algorithm :
       {ConvAlgorithm::Direct, ConvAlgorithm::Winograd, ConvAlgorithm::Auto}) {
    const ConvAlgorithm before = conv_algorithm();
    set_conv_algorithm(algorithm);
    for (const DType dtype : {DType::Float32, DType::BFloat16}) check_blocks(dtype, {}, 17);
    set_conv_algorithm(before);
  }
  for (const DType dtype : {DType::Float64, DType::Float16}) check_blocks(dtype, {}, 3);
}

TEST_CASE("cuda: a convolution begins the gradient of its input with the one that waits",
          "[quick][cuda]") {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16})
    check_blocks(dtype, Device(DeviceType::CUDA), 8);
  check_blocks(DType::BFloat16, Device(DeviceType::CUDA), 12);
}

TEST_CASE("a sum of gradients that a convolution begins has the right derivative",
          "[quick][engine]") {
  const Block b(false, DType::Float64, {}, 2);
  const auto loss = [&](const std::vector<Tensor>& in) {
    const Tensor h = in[0] * in[0];
    return sum(square(conv2d(h, in[1], {}, {.padding = 1}) + h + conv2d(h, in[2])));
  };
  const auto leaf = [](const Tensor& x) {
    return copy_of(x.detach(), x.options()).set_requires_grad();
  };
  const GradcheckResult result = gradcheck(loss, {leaf(b.h), leaf(b.w), leaf(b.shortcut)});
  INFO(result.message);
  CHECK(result);
}

TEST_CASE("hooks, retained graphs and autograd::grad see the sum that a convolution has begun",
          "[quick][engine]") {
  const Tensor x = Tensor(ones({1, 1, 2, 2})).set_requires_grad();
  const Tensor w = full({1, 1, 1, 1}, 3);
  const Tensor h = x * 1.0;
  const Tensor loss = sum(conv2d(h, w) * 2.0 + h);  // each gradient is 2 · 3 + 1
  h.retain_grad();
  Values seen;
  h.register_hook([&](const Tensor& gradient) {
    seen = to_vector<double>(gradient);
    return gradient * 10.0;
  });
  loss.backward({}, true);
  CHECK(seen == Values(4, 7));
  CHECK(to_vector<double>(x.grad()) == Values(4, 70));
  CHECK(to_vector<double>(h.grad()) == Values(4, 70));
  CHECK(to_vector<double>(autograd::grad({loss}, {h}, {.retain_graph = true})[0]) == Values(4, 70));
  x.set_grad({});
  loss.backward();
  CHECK(to_vector<double>(x.grad()) == Values(4, 70));
}

TEST_CASE("a waiting gradient is taken where it lies alike, and once", "[quick][engine]") {
  const Tensor x = Tensor(ones({2, 3})).set_requires_grad();
  std::vector<bool> taken;
  const auto takes = [&](const Tensor& h, const Tensor& like) {
    return differentiable("takes", {h}, copy_of(h, h.options()),
                          [&taken, like](const Tensor& dy) -> Gradients {
                            const Tensor waiting = take_waiting_gradient(0, like);
                            taken.push_back(waiting.defined());
                            CHECK_FALSE(take_waiting_gradient(0, like));
                            return {waiting ? add(dy, waiting) : dy};
                          });
  };
  const Tensor h = x * 1.0;
  const Tensor alike = empty({2, 3});
  const Tensor turned = transpose(empty({3, 2}), 0, 1);
  // Newest first: the product gives h its gradient, then one that lies alike takes it, then one
  // that does not.
  const Tensor last = takes(h, turned);
  const Tensor second = takes(h, alike);
  const Tensor first = h * 5.0;
  (last + second + first).backward(ones({2, 3}));
  CHECK(taken == std::vector<bool>{true, false});
  CHECK(to_vector<double>(x.grad()) == Values(6, 7));
  require_error<Error>("take_waiting_gradient: no closure of a backward pass is running",
                       [&] { take_waiting_gradient(0, alike); });
}

}  // namespace ringgrad::test::waiting_gradient_test
