// The order in which gradients become ready decides which of them travel together, and so how sums round.
#include "tests/catch.h"
#include "tests/ddp_ranks.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

struct Crossed : nn::Module {  // used in another order than registered
  nn::Linear a{6, 8}, b{8, 8}, c{8, 3};
  Crossed() {
    register_module("c", c);
    register_module("a", a);
    register_module("b", b);
  }
  Tensor forward(const Tensor& x) override { return c(relu(b(relu(a(x))))); }
};

struct Trained {
  ProcessGroup& group;
  std::unique_ptr<Crossed> net = make_net<Crossed>(3, DType::Float32);
  DistributedDataParallel ddp{*net, group, {.caps = {64, 128}}};
  optim::SGD optimizer{ddp.named_parameters(), {.lr = 0.05, .momentum = 0.9}};

  explicit Trained(ProcessGroup& ranks) : group(ranks) {}
  void steps(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      const auto [x, target] = samples({6}, 3, DType::Float32, 12 * step, 12 * step + 12, group.rank(), group.size());
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      optimizer.step();
    }
  }
};

}  // namespace

TEST_CASE("buckets follow the order in which gradients become ready", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Crossed>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), 2);
    cross_entropy(ddp(x), target).backward();
    must(ddp.log().buckets.front().parameters->find("b.") == 0, "planned by registration at first");
    must(ddp.totals().plans == 2, "planned anew");
    cross_entropy(ddp(x), target).backward();
    must(ddp.log().buckets.front().parameters->find("c.") == 0, "then as observed");
    double last = 0;
    for (const BucketLog& bucket : ddp.log().buckets) {
      must(bucket.ready >= last && bucket.launched >= bucket.ready && bucket.completed >= bucket.launched, "times");
      last = bucket.ready;
    }
    must(ddp.log().finished >= ddp.log().computed, "the end comes last");
  });
}

TEST_CASE("a run that goes on with the order that was observed does not notice the pause", "[ddp][quick][threads]") {
  run_ddp_ranks(
      3,
      [](ProcessGroup& group) {
        Trained whole(group), first(group), second(group);
        whole.steps(0, 6);
        must(first.ddp.ready_order().empty(), "nothing was observed yet");
        first.steps(0, 3);
        const std::vector<std::string> order = first.ddp.ready_order();
        must(order.size() == 6 && order.front().starts_with("c.") && order.back().starts_with("a."), "as observed");
        second.net->load_state_dict(first.net->state_dict());
        second.optimizer.load_state_dict(first.optimizer.state_dict());
        second.ddp.set_ready_order({"of", "others"});
        must(second.ddp.ready_order().empty(), "an order of others changes nothing");
        second.ddp.set_ready_order(order);
        must(second.ddp.ready_order() == order, "set");
        second.steps(3, 6);
        must(flat_values(second.ddp) == flat_values(whole.ddp), "bit for bit");
      },
      "tcp");
}
