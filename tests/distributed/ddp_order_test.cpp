// The order in which gradients become ready decides which of them travel together, and so how sums
// round.
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::ddp_order_test {

namespace {

struct Crossed : nn::Module {  // used in another order than registered
  nn::Linear a{6, 8};
  nn::Linear b{8, 8};
  nn::Linear c{8, 3};
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
      const auto [x, target] =
          samples({6}, 3, DType::Float32, 12 * step, 12 * step + 12, group.rank(), group.size());
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
      must(bucket.ready >= last && bucket.launched >= bucket.ready &&
               bucket.completed >= bucket.launched,
           "times");
      last = bucket.ready;
    }
    must(ddp.log().finished >= ddp.log().computed, "the end comes last");
  });
}

TEST_CASE("two wrappers in one loss, with parameters that only one rank's loss has",
          "[ddp][quick][threads]") {
  struct Choice : nn::Module {
    nn::Linear trunk{6, 16};
    nn::Linear left{16, 3};
    nn::Linear right{16, 3};
    bool goes_right = false;
    Choice() {
      register_module("trunk", trunk);
      register_module("left", left);
      register_module("right", right);
    }
    Tensor forward(const Tensor& x) override {
      const Tensor h = relu(trunk(x));
      return goes_right ? right(h) : left(h);
    }
  };
  const bool unusual = GENERATE(false, true);  // a number of samples that is not the first step's
  run_ddp_ranks(3, [&](ProcessGroup& group) {
    const auto one = make_net<Choice>(3, DType::Float64);
    const auto two = make_net<Choice>(4, DType::Float64);
    const auto alone_one = make_net<Choice>(3, DType::Float64);
    const auto alone_two = make_net<Choice>(4, DType::Float64);
    DistributedDataParallel first(*one, group, {.caps = {64, 64}});
    DistributedDataParallel second(*two, group, {.caps = {64, 64}});
    for (int64_t step = 0; step < 4; ++step) {
      one->goes_right = alone_one->goes_right = group.rank() == 1;
      two->goes_right = alone_two->goes_right = group.rank() == 2 && step % 2 == 0;
      const int64_t count = unusual && step == 2 ? 12 : 24;
      const auto [x, target] =
          samples({6}, 3, DType::Float64, 24 * step, 24 * step + count, group.rank(), 3);
      for (nn::Module* net : {one.get(), two.get(), alone_one.get(), alone_two.get()})
        net->zero_grad();
      cross_entropy(first(x) + second(x), target).backward();
      cross_entropy((*alone_one)(x) + (*alone_two)(x), target).backward();
      std::vector<double> got;
      std::vector<double> expected;
      const auto append = [](std::vector<double>& all, const Tensor& x) {
        const auto more = to_vector<double>(x);
        all.insert(all.end(), more.begin(), more.end());
      };
      for (const auto& [net, alone] :
           {std::pair(&*one, &*alone_one), std::pair(&*two, &*alone_two)})
        for (size_t i = 0; i < net->parameters().size(); ++i) {
          const Tensor own = alone->parameters()[i].grad();
          const Tensor averaged = net->parameters()[i].grad();
          const Tensor mean = own ? own : zeros_like(averaged);
          group.all_reduce(mean, ReduceOp::Average).wait();
          append(got, averaged);
          append(expected, mean);
        }
      must(relative_difference(got, expected) < 1e-12, "the average of all ranks' gradients");
    }
  });
}

TEST_CASE("a run that goes on with the order that was observed does not notice the pause",
          "[ddp][quick][threads]") {
  run_ddp_ranks(
      3,
      [](ProcessGroup& group) {
        Trained whole(group);
        Trained first(group);
        Trained second(group);
        whole.steps(0, 6);
        must(first.ddp.ready_order().empty(), "nothing was observed yet");
        first.steps(0, 3);
        const std::vector<std::string> order = first.ddp.ready_order();
        must(order.size() == 6 && order.front().starts_with("c.") && order.back().starts_with("a."),
             "as observed");
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

// A tensor that a user takes before the first step names the same memory after it. Nothing moves
// once the module is wrapped, although the buckets are planned anew.
TEST_CASE("buckets that cannot be planned leave those that there are", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    Trained trained(group);
    trained.steps(0, 2);
    must_be_refused(group, "buckets: the caps are 0 and 0 bytes", [&] {
      trained.ddp.set_ready_order(trained.ddp.ready_order(), BucketCaps{0, 0});
    });
    trained.steps(2, 4);
    trained.ddp.check_identical();
  });
}

TEST_CASE("handles taken before the first step stay good", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Crossed>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 128}});
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.05, .momentum = 0.9});
    const auto state = net->state_dict();
    const auto momentum = optimizer.state_dict();
    std::vector<Tensor> grads;
    std::vector<Tensor> detached;
    for (const Tensor& parameter : net->parameters()) {
      grads.push_back(parameter.grad());
      detached.push_back(parameter.detach());
    }
    for (int64_t step = 0; step < 3; ++step) {
      const auto [x, target] =
          samples({6}, 3, DType::Float32, 8 * step, 8 * step + 8, group.rank(), 2);
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      optimizer.step();
    }
    must(ddp.totals().plans == 2, "planned anew");
    const auto same = [](const Tensor& held, const Tensor& now, const std::string& what) {
      must(held.shares_memory_with(now) && held.raw_data() == now.raw_data(), what);
      must(to_vector<float>(held) == to_vector<float>(now), what);
    };
    for (size_t i = 0; i < state.size(); ++i)
      same(state[i].second, net->state_dict()[i].second, state[i].first);
    const auto momentum_now = optimizer.state_dict();
    for (size_t i = 0; i < momentum.size(); ++i)
      must(momentum[i].second.raw_data() == momentum_now[i].second.raw_data(), momentum[i].first);
    const auto parameters = net->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      same(detached[i], parameters[i].detach(), "detached");
      same(grads[i], parameters[i].grad(), "gradient");
    }
  });
}

TEST_CASE("an optimizer made before wrapping keeps its memory, and who holds the values keeps them",
          "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Crossed>(3, DType::Float32);
    optim::SGD optimizer(net->named_parameters(), {.lr = 0.05, .momentum = 0.9});
    const auto state = net->state_dict();
    const auto momentum = optimizer.state_dict();
    DistributedDataParallel ddp(*net, group, {.caps = {64, 128}});
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), 2);
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      optimizer.step();
    }
    const auto state_now = net->state_dict();
    const auto momentum_now = optimizer.state_dict();
    for (size_t i = 0; i < state.size(); ++i)
      must(state[i].second.raw_data() == state_now[i].second.raw_data(), state[i].first);
    for (size_t i = 0; i < momentum.size(); ++i)
      must(momentum[i].second.raw_data() == momentum_now[i].second.raw_data(), momentum[i].first);
  });
}

}  // namespace ringgrad::test::ddp_order_test
