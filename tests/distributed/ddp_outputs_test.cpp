// Modules of several inputs and outputs, and modules that compute their loss, under
// DistributedDataParallel.
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::ddp_outputs_test {

namespace {

struct WithLoss : Mlp {
  struct Outputs {
    Tensor logits;
    Tensor loss;
  };
  using Mlp::forward;
  Outputs forward(const Tensor& x, const Tensor& target) {
    const Tensor logits = forward(x);
    return {logits, cross_entropy(logits, target)};
  }
};

// Returns the gradients of one step: those of both ranks together, and those of one process with
// all samples.
template <class Step>
void check_two_ranks(const Step& step) {
  const auto alone = make_net<WithLoss>(3, DType::Float64);
  const auto [all_x, all_target] = samples({6}, 3, DType::Float64, 0, 8);
  cross_entropy(alone->forward(all_x), all_target).backward();
  const auto expected = to_vector<double>(alone->first.weight.grad());
  const auto errors = errors_of_ranks(host_groups(2), [&](ProcessGroup& group) {
    const auto net = make_net<WithLoss>(3, DType::Float64);
    DDP ddp(*net, group);
    const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8, group.rank(), 2);
    ddp.zero_grad();
    step(ddp, x, target);
    const auto found = to_vector<double>(net->first.weight.grad());
    must(relative_difference(found, expected) < 1e-12, "gradients");
  });
  for (const std::string& error : errors) CHECK(error == "");
}

}  // namespace

TEST_CASE("the loss that a module computes is averaged, whatever else it returns",
          "[ddp][quick][threads]") {
  check_two_ranks([](DDP<WithLoss>& ddp, const Tensor& x, const Tensor& target) {
    const auto [logits, loss] = ddp(x, target);
    must(logits.shape() == Shape{4, 3}, "logits");
    loss.backward();
  });
}

TEST_CASE("any of several outputs may be part of the loss", "[ddp][quick][threads]") {
  check_two_ranks([](DDP<WithLoss>& ddp, const Tensor& x, const Tensor& target) {
    const auto [logits, loss] = ddp(x, target);
    (cross_entropy(logits, target) / 2 + loss / 2).backward();
  });
}

TEST_CASE("any callable of the module can be wrapped", "[ddp][quick][threads]") {
  check_two_ranks([](DDP<WithLoss>& ddp, const Tensor& x, const Tensor& target) {
    const auto [count, losses] = ddp.apply(
        [](nn::Module& net, const Tensor& batch, const std::vector<Tensor>& targets) {
          const Tensor logits = net(batch);
          return std::pair(targets.size(), std::vector{cross_entropy(logits, targets[0])});
        },
        x, std::vector{target});
    must(count == 1, "what is no tensor");
    losses[0].backward();
  });
}

TEST_CASE("without gradients a wrapper only forwards", "[ddp][quick][threads]") {
  const auto errors = errors_of_ranks(host_groups(1), [](ProcessGroup& group) {
    const auto net = make_net<WithLoss>(3, DType::Float32);
    DDP ddp(*net, group);
    const NoGradGuard no_grad;
    must(!ddp(zeros({2, 6})).requires_grad(), "no graph");
  });
  CHECK(errors[0] == "");
}

// For the gradient of an input, say: no parameter gets one, so nothing is averaged, and other ranks
// need not do it, too.
TEST_CASE("autograd::grad through a wrapper is no step", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    const auto plain = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    DistributedDataParallel twin(*plain, group);
    const auto [x, target] = samples({6}, 3, DType::Float64, 0, 8, group.rank(), 2);
    const auto step = [&](DistributedDataParallel& wrapper) {
      cross_entropy(wrapper(x), target).backward();
    };
    step(ddp);
    step(twin);
    const auto before = gradients(*net);
    if (group.rank() == 0) {
      const Tensor input = x.clone().requires_grad_(true);
      const Tensor other = x.clone().requires_grad_(true);
      const Tensor found = autograd::grad({cross_entropy(ddp(input), target)}, {input})[0];
      const Tensor expected = autograd::grad({cross_entropy((*plain)(other), target)}, {other})[0];
      must(to_vector<double>(found) == to_vector<double>(expected), "the input's gradient");
      must(gradients(*net) == before, "the parameters keep theirs");
    }
    step(ddp);
    step(twin);
    must(gradients(*net) == gradients(*plain), "the next step is one of all ranks");
    must(ddp.totals().steps == 2 && ddp.log().step == 1, "two steps");
  });
}

}  // namespace ringgrad::test::ddp_outputs_test
