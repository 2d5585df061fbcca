// An argument of another kind than its parameter must not compile. C++ would silently convert a
// bool to a dimension, a number to a flag, a letter to a number and a fraction to a count.
// Everything else means the same as in libtorch.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/data/sampler.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/nn/init.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/clip_grad.h"
#include "ringgrad/nn/optim/lr_scheduler.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::test::argument_kinds_test {

namespace {

using Tensors = std::vector<Tensor>;

// True if the expression compiles for a tensor x and an argument `a` of this type.
#define TAKES(TYPE, ...)                                                            \
  ([]<class X, class A>() {                                                         \
    return requires(const X& x, A a, nn::Linear& net, DistributedDataParallel& ddp, \
                    ProcessGroup& group, optim::SGD& sgd) {                         \
      __VA_ARGS__;                                                                  \
    };                                                                              \
  }.template operator()<Tensor, TYPE>())

#define INTEGER(...)                                                                        \
  static_assert(                                                                            \
      TAKES(int, __VA_ARGS__) && TAKES(int64_t, __VA_ARGS__) && TAKES(size_t, __VA_ARGS__), \
      #__VA_ARGS__);                                                                        \
  static_assert(!TAKES(bool, __VA_ARGS__) && !TAKES(char, __VA_ARGS__) &&                   \
                    !TAKES(double, __VA_ARGS__) && !TAKES(float, __VA_ARGS__) &&            \
                    !TAKES(int*, __VA_ARGS__),                                              \
                #__VA_ARGS__)
#define FLAG(...)                                                               \
  static_assert(TAKES(bool, __VA_ARGS__), #__VA_ARGS__);                        \
  static_assert(!TAKES(int, __VA_ARGS__) && !TAKES(char, __VA_ARGS__) &&        \
                    !TAKES(double, __VA_ARGS__) && !TAKES(int*, __VA_ARGS__) && \
                    !TAKES(const char*, __VA_ARGS__),                           \
                #__VA_ARGS__)
#define NUMBER(...)                                                                        \
  static_assert(                                                                           \
      TAKES(int, __VA_ARGS__) && TAKES(float, __VA_ARGS__) && TAKES(double, __VA_ARGS__),  \
      #__VA_ARGS__);                                                                       \
  static_assert(                                                                           \
      !TAKES(bool, __VA_ARGS__) && !TAKES(char, __VA_ARGS__) && !TAKES(int*, __VA_ARGS__), \
      #__VA_ARGS__)
// Tests a number beside a tensor. A bool is 0 or 1, as in libtorch.
#define SCALAR(...)                                                                               \
  static_assert(TAKES(int, __VA_ARGS__) && TAKES(double, __VA_ARGS__) &&                          \
                    TAKES(bool, __VA_ARGS__) && TAKES(bfloat16, __VA_ARGS__),                     \
                #__VA_ARGS__);                                                                    \
  static_assert(                                                                                  \
      !TAKES(char, __VA_ARGS__) && !TAKES(int*, __VA_ARGS__) && !TAKES(const char*, __VA_ARGS__), \
      #__VA_ARGS__)

// Tests a parameter that takes an integer, or libtorch's `unbiased`.
#define INTEGER_OR_FLAG(...)                                                                 \
  static_assert(TAKES(int, __VA_ARGS__) && TAKES(bool, __VA_ARGS__), #__VA_ARGS__);          \
  static_assert(                                                                             \
      !TAKES(char, __VA_ARGS__) && !TAKES(double, __VA_ARGS__) && !TAKES(int*, __VA_ARGS__), \
      #__VA_ARGS__)

// clang-format off
INTEGER_OR_FLAG(x.var(a));
INTEGER_OR_FLAG(x.std(a));
INTEGER_OR_FLAG(var(x, a));
INTEGER_OR_FLAG(ringgrad::std(x, a));
INTEGER_OR_FLAG(x.var({0}, a));
INTEGER_OR_FLAG(x.std({0}, a));
INTEGER_OR_FLAG(var(x, {0}, a));

SCALAR(x + a);
SCALAR(a + x);
SCALAR(x - a);
SCALAR(a - x);
SCALAR(x * a);
SCALAR(a * x);
SCALAR(x / a);
SCALAR(a / x);
SCALAR(x += a);
SCALAR(x -= a);
SCALAR(x *= a);
SCALAR(x /= a);
SCALAR(x.mul_(a));
SCALAR(x.add_(x, a));
SCALAR(x == a);
SCALAR(x != a);
SCALAR(x < a);
SCALAR(x <= a);
SCALAR(x > a);
SCALAR(x >= a);
SCALAR(x.eq(a));
SCALAR(pow(x, a));
SCALAR(x.pow(a));
SCALAR(clamp(x, a, a));
SCALAR(x.clamp(a, a));
SCALAR(x.clamp_(a, a));
SCALAR(where(x, x, a));
SCALAR(where(x, a, x));
SCALAR(masked_fill(x, x, a));
SCALAR(x.masked_fill(x, a));
SCALAR(x.masked_fill_(x, a));
SCALAR(x.fill_(a));
SCALAR(fill_(x, a));
SCALAR(x.index_put_({x}, a));
SCALAR(x[0] = a);
SCALAR(full({1}, a));
SCALAR(full_like(x, a));
SCALAR(scalar(a));
SCALAR(scalar_like(x, a));
SCALAR(pad(x, {1, 1}, a));
SCALAR(arange(a, a, a));
SCALAR(linspace(a, a, 3));

INTEGER(x.size(a));
INTEGER(x.stride(a));
INTEGER(x[a]);
INTEGER(x.select(a, 0));
INTEGER(x.select(0, a));
INTEGER(x.softmax(a));
INTEGER(softmax(x, a));
INTEGER(x.log_softmax(a));
INTEGER(log_softmax(x, a));
INTEGER(x.sum(a));
INTEGER(sum(x, a));
INTEGER(sum(x, {a}));
INTEGER(x.mean(a));
INTEGER(mean(x, {0, a}));
INTEGER(x.any(a));
INTEGER(any(x, a));
INTEGER(x.all(a));
INTEGER(all(x, a));
INTEGER(x.norm(2, a));
INTEGER(norm(x, 2, a));
INTEGER(logsumexp(x, a));
INTEGER(x.max(a));
INTEGER(max(x, a));
INTEGER(x.min(a));
INTEGER(min(x, a));
INTEGER(x.argmax(a));
INTEGER(argmax(x, a));
INTEGER(x.argmin(a));
INTEGER(argmin(x, a));
INTEGER(x.cumsum(a));
INTEGER(cumsum(x, a));
INTEGER(x.sort(a));
INTEGER(sort(x, a));
INTEGER(argsort(x, a));
INTEGER(x.topk(a));
INTEGER(topk(x, a));
INTEGER(x.topk(1, a));
INTEGER(topk(x, 1, a));
INTEGER(x.flatten(a));
INTEGER(flatten(x, 0, a));
INTEGER(x.squeeze(a));
INTEGER(squeeze(x, a));
INTEGER(x.unsqueeze(a));
INTEGER(unsqueeze(x, a));
INTEGER(x.transpose(a, 0));
INTEGER(transpose(x, 0, a));
INTEGER(x.permute({0, a}));
INTEGER(permute(x, {0, a}));
INTEGER(x.slice(a, 0));
INTEGER(slice(x, 0, a));
INTEGER(slice(x, 0, 0, a));
INTEGER(slice(x, 0, 0, 1, a));
INTEGER(x.narrow(0, a, 1));
INTEGER(narrow(x, a, 0, 1));
INTEGER(x.chunk(a));
INTEGER(chunk(x, 2, a));
INTEGER(x.split(a));
INTEGER(split(x, 2, a));
INTEGER(split(x, a));
INTEGER(cat(Tensors{x, x}, a));
INTEGER(stack(Tensors{x, x}, a));
INTEGER(tril(x, a));
INTEGER(triu(x, a));
INTEGER(x.index_select(a, x));
INTEGER(index_select(x, a, x));
INTEGER(x.gather(a, x));
INTEGER(gather(x, a, x));
INTEGER(scatter(x, a, x, x));
INTEGER(scatter_add(x, a, x, x));
INTEGER(index_add(x, a, x, x));
INTEGER(one_hot(x, a));
INTEGER(x.index({a}));
INTEGER(x.index({Slice(a)}));
INTEGER(x.index({Slice(0, a)}));
INTEGER(x.index({Slice(0, 1, a)}));
INTEGER(group_norm(x, a));
INTEGER(multinomial(x, a));
INTEGER(randperm(a));
INTEGER(arange(a));
INTEGER(eye(a));
INTEGER(randint(a, 5, {1}));
INTEGER(randint(0, a, {1}));
INTEGER(linspace(0, 1, a));
INTEGER(zeros({a}));
INTEGER(x.view({a, 1}));
INTEGER(x.reshape({1, a}));
INTEGER(x.expand({a}));
INTEGER(x.repeat({a}));
INTEGER(max_pool2d(x, a));
INTEGER(avg_pool2d(x, {a, 2}));
INTEGER(adaptive_avg_pool2d(x, a));
INTEGER(conv2d(x, x, x, a));
INTEGER(conv2d(x, x, x, 1, 0, 1, a));
INTEGER(nn::Linear(a, 2));
INTEGER(nn::Linear(2, a));
INTEGER(nn::Conv2d(a, 2, 3));
INTEGER(nn::Conv2d(1, 2, a));
INTEGER(nn::Conv1d(1, a, 3));
INTEGER(nn::ConvTranspose2d(1, a, 3));
INTEGER(nn::BatchNorm2d(a));
INTEGER(nn::BatchNorm1d(a));
INTEGER(nn::GroupNorm(a, 4));
INTEGER(nn::Embedding(a, 4));
INTEGER(nn::Flatten(a));
INTEGER(nn::Softmax(a));
INTEGER(nn::MaxPool2d(a));
INTEGER(nn::PReLU(a));
INTEGER(sgd.lr(a));
INTEGER(sgd.set_lr(a, 1));
INTEGER(SequentialSampler(a));
INTEGER(RandomSampler(a));
INTEGER(DistributedSampler(8, a, 0));
INTEGER(ddp.set_step(a));
INTEGER(group.broadcast(x, a));
INTEGER(group.send(x, a));
INTEGER(group.recv(x, a));
INTEGER(group.reduce(x, a));

FLAG(x.set_requires_grad(a));
FLAG(x.requires_grad_(a));
FLAG(x.backward({}, a));
FLAG(x.sum({}, a));
FLAG(sum(x, 0, a));
FLAG(x.mean(0, a));
FLAG(var(x, {0}, 1, a));
FLAG(x.std({0}, true, a));
FLAG(x.norm(2, 0, a));
FLAG(x.any(0, a));
FLAG(x.all(0, a));
FLAG(logsumexp(x, 0, a));
FLAG(x.max(0, a));
FLAG(x.min(0, a));
FLAG(x.argmax(0, a));
FLAG(x.argmin(0, a));
FLAG(x.sort(0, a));
FLAG(argsort(x, 0, a));
FLAG(x.topk(1, 0, a));
FLAG(dropout(x, 0.5, a));
FLAG(dropout2d(x, 0.5, a));
FLAG(multinomial(x, 1, a));
FLAG(kl_div(x, x, Reduction::Mean, a));
FLAG(x.index_put_({x}, x, a));
FLAG(index_put(x, {x}, x, a));
FLAG(net.train(a));
FLAG(net.load_state_dict({}, a));
FLAG(ddp.set_flag(a));

NUMBER(leaky_relu(x, a));
NUMBER(elu(x, a));
NUMBER(softplus(x, a));
NUMBER(x.norm(a));
NUMBER(norm(x, a));
NUMBER(dropout(x, a));
NUMBER(dropout2d(x, a));
NUMBER(huber_loss(x, x, a));
NUMBER(smooth_l1_loss(x, x, a));
NUMBER(layer_norm(x, {1}, x, x, a));
NUMBER(group_norm(x, 1, x, x, a));
NUMBER(uniform_(x, a, a));
NUMBER(normal_(x, a, a));
NUMBER(nn::Dropout(a));
NUMBER(nn::LeakyReLU(a));
NUMBER(nn::ELU(a));
NUMBER(nn::PReLU(1, a));
NUMBER(nn::init::uniform_(x, a, a));
NUMBER(nn::init::normal_(x, a, a));
NUMBER(nn::init::constant_(x, a));
NUMBER(optim::clip_grad_norm_(Tensors{x}, a));
NUMBER(sgd.set_lr(a));
NUMBER(ddp.set_weight(a));
// clang-format on

}  // namespace

TEST_CASE("a bool for var and std is libtorch's unbiased", "[quick]") {
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(x.std(false).item<double>() == Approx(1.707825).epsilon(1e-6));  // PyTorch's numbers
  CHECK(x.var(true).item<double>() == Approx(3.5));
  CHECK(x[0].std(false).item<double>() == Approx(0.8164966).epsilon(1e-6));
  CHECK(x[0].std(true).item<double>() == Approx(1));
  CHECK(x.var({1}, false)[1].item<double>() == Approx(0.6666667).epsilon(1e-6));
  CHECK(x.std(1, true, true).shape() == Shape{2, 1});
  CHECK(ringgrad::std(x, false).item<double>() == x.std({}, 0).item<double>());
}

TEST_CASE("an integer that is too large for its parameter is an error", "[quick]") {
  const Tensor x = zeros({2, 3});
  require_error<IndexError>("the argument 4294967296 does not fit into the 32 bits",
                            [&] { x.softmax(int64_t{1} << 32); });
  require_error<IndexError>("does not fit into the 64 bits", [&] { x.narrow(0, UINT64_MAX, 1); });
}

}  // namespace ringgrad::test::argument_kinds_test
