// Mistakes that would silently make the ranks' parameters different. Each is an error in its own
// step, on all ranks, and names the rank, the tensor and the remedy.
#include <optional>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/distributed/comm_hook.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::ddp_mistakes_test {

namespace {

template <class Body>
std::vector<std::string> errors_of(int size, Body body) {
  return errors_of_ranks(host_groups(size, "shm", {.timeout = std::chrono::seconds(20)}), body);
}

void backward(DistributedDataParallel& ddp, const ProcessGroup& group) {
  const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), group.size());
  cross_entropy(ddp(x), target).backward();
}

struct Changing : nn::Module {  // whose tensors change after it was wrapped
  nn::Linear first{6, 8};
  nn::Linear last{8, 3};
  nn::Linear other{8, 3};
  nn::Parameter scale = register_parameter("scale", ones({3}));
  nn::Buffer count = register_buffer("count", zeros({2}, {.dtype = DType::Int64}));
  Changing() {
    register_module("first", first);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) override { return last(relu(first(x))) * scale; }
  void add_layer() { register_module("other", other); }
  void add_buffer() { register_buffer("mask", ones({2})); }
};

}  // namespace

TEST_CASE("a layer that one rank freezes is named in that step", "[ddp][quick][threads]") {
  const int freezes = GENERATE(0, 1);
  const bool after_forward = GENERATE(false, true);
  const auto errors = errors_of(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    for (int step = 0; step < 4; ++step) {
      const auto freeze = [&] {
        if (step == 2 && group.rank() == freezes) net->first.weight.set_requires_grad(false);
      };
      const auto [x, target] = samples({6}, 3, DType::Float32, 0, 9, group.rank(), 3);
      if (!after_forward) freeze();
      const Tensor loss = cross_entropy(ddp(x), target);
      if (after_forward) freeze();
      loss.backward();
      must(step < 2, "the step in which a layer is frozen");
    }
  });
  for (const std::string& error : errors) {
    require_contains(
        error, "step 2: rank 1 has another set of frozen parameters than rank 0: first.weight");
    require_contains(
        error, freezes == 0 ? "first.weight is frozen on rank 0" : "first.weight is frozen there");
    require_contains(error, "on all ranks before the same step");
  }
}

TEST_CASE("ranks may freeze a layer together, and let it go again", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    std::vector<float> frozen;
    for (int step = 0; step < 6; ++step) {
      net->first.weight.set_requires_grad(step < 2 || step >= 4);
      if (step == 2) frozen = to_vector<float>(net->first.weight);
      if (step == 4) must(to_vector<float>(net->first.weight) == frozen, "it stays");
      optimizer.zero_grad();
      backward(ddp, group);
      optimizer.step();
    }
    must(to_vector<float>(net->first.weight) != frozen, "it moves");
    ddp.check_identical();
  });
}

TEST_CASE("a rank that alone is in evaluation mode is named", "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    if (group.rank() == 1) net->middle.eval();
    backward(ddp, group);
  });
  for (const std::string& error : errors) {
    require_contains(
        error, "step 1: rank 1 has another mode than rank 0: middle is in evaluation mode there");
    require_contains(error, "call train() and eval() on all ranks alike");
  }
}

TEST_CASE("a module is wrapped once at a time", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    const std::string said = "another wrapper averages the gradient of first.weight already";
    {
      DistributedDataParallel ddp(*net, group);
      must_be_refused(group, said, [&] { DistributedDataParallel twice(*net, group); });
      must_be_refused(group, said, [&] { DistributedDataParallel wrapped(ddp, group); });
      must_be_refused(group, said, [&] { VirtualRanks shards(*net, group, {.shards = 2}); });
      struct Both : nn::Module {
        nn::Linear own{6, 6};
        explicit Both(nn::Module& shared) {
          register_module("own", own);
          register_module("shared", shared);
        }
      };
      const auto both = make_seeded<Both>(4, *net);
      must_be_refused(group, "the gradient of shared.first.weight already",
                      [&] { DistributedDataParallel tied(*both, group); });
      backward(ddp, group);  // the first one goes on
    }
    VirtualRanks shards(*net, group, {.shards = 2});
    must_be_refused(group, said, [&] { DistributedDataParallel ddp(*net, group); });
  });
}

TEST_CASE("a module that changes after it was wrapped is named in that step",
          "[ddp][quick][threads]") {
  struct Change {
    std::string said;
    std::function<void(Changing&)> make;
  };
  const std::vector<Change> changes{
      {"other.weight was added", [](Changing& net) { net.add_layer(); }},
      {"mask was added", [](Changing& net) { net.add_buffer(); }},
      {"scale is another tensor", [](Changing& net) { net.scale = ones({3}); }},
      {"last.bias is no tensor of its own", [](Changing& net) { net.last.bias = Tensor(); }},
      {"last.bias is no tensor of its own", [](Changing& net) { net.last.bias = net.scale; }},
      {"count is another tensor",
       [](Changing& net) { net.count = zeros({5}, {.dtype = DType::Int64}); }},
      {"scale is now float64 on cpu:0, but was float32",
       [](Changing& net) { net.to(DType::Float64); }},
  };
  const Change& change = changes[GENERATE(range(0, 7))];
  const int changes_it = GENERATE(0, 1);
  const auto errors = errors_of(2, [&](ProcessGroup& group) {
    const auto net = make_net<Changing>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    if (group.rank() == changes_it) change.make(*net);
    backward(ddp, group);
  });
  for (const std::string& error : errors) {
    require_contains(error, change.said);
    require_contains(error, str("on rank ", changes_it, ", before step 1"));
    require_contains(error, "change a module before it is wrapped");
  }
}

TEST_CASE("an optimizer's step in a hook is named", "[ddp][quick][threads]") {
  const bool before_wrapping = GENERATE(false, true);
  const auto errors = errors_of(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    optim::SGD optimizer(std::vector<Tensor>{net->middle.weight}, {.lr = 0.1});
    const auto hook = [&] {
      return register_post_accumulate_grad_hook(net->middle.weight,
                                                [&](const Tensor&) { optimizer.step(); });
    };
    std::optional<ScopedHook> early;
    if (before_wrapping) early.emplace(hook());
    DistributedDataParallel ddp(*net, group);
    const ScopedHook late(before_wrapping ? HookHandle() : hook());
    backward(ddp, group);
  });
  for (const std::string& error : errors) {
    require_contains(error, "parameters were written to during the backward of step 0");
    require_contains(error, "middle.weight");
    require_contains(error, "call optimizer.step() after backward(), not in a hook");
  }
}

// If a module is converted between two forwards, each parameter has two accumulators in one graph.
TEST_CASE("a gradient that comes twice in a pass is named", "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    const Tensor first = sum(ddp(ones({2, 6})));
    net->to(DType::Float64);
    const Tensor second = sum((*net)(ones({2, 6}, {.dtype = DType::Float64})));
    net->to(DType::Float32);
    (first + to(second, DType::Float32)).backward();
  });
  for (const std::string& error : errors) {
    require_contains(error, "came twice in the backward of step 1");
    require_contains(error, "convert or move a module before the first of the forwards");
  }
}

TEST_CASE("a buffer whose elements share memory is refused by name", "[ddp][quick][threads]") {
  struct Expanded : nn::Module {
    nn::Linear fc{6, 3};
    Expanded() {
      register_module("fc", fc);
      register_buffer("positions", zeros({4}).as_strided({3, 4}, {0, 1}, 0));
    }
    Tensor forward(const Tensor& x) override { return fc(x); }
  };
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_seeded<Expanded>(3);
    must_be_refused(group, "elements of the buffer positions of shape [3, 4] share memory",
                    [&] { DistributedDataParallel ddp(*net, group); });
  });
}

TEST_CASE("an infinite gradient says what a GradScaler needs", "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    mean(ddp(full({2, 6}, 1e38)) * full({}, 1e38)).backward();
  });
  for (const std::string& error : errors)
    require_contains(error, "a GradScaler skips such steps, and wants check_finite");
}

TEST_CASE("a communication hook that was refused averages nothing", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.zero = 1});
    must_be_refused(group, "a communication hook with zero = 1",
                    [&] { ddp.register_comm_hook(bf16_compress_hook()); });
    must_be_refused(group, "gradients are averaged plainly", [&] {
      ddp.load_comm_hook_state({{"plan", tensor<int64_t>({5, 4, 3, 2, 1, 0, 100, 100})}});
    });
  });
}

TEST_CASE("shards: a frozen layer on one rank and a changed module are named",
          "[virtual_ranks][quick][threads]") {
  const bool freezes = GENERATE(true, false);
  const auto errors = errors_of(2, [&](ProcessGroup& group) {
    const auto net = make_net<Changing>(3, DType::Float32);
    VirtualRanks shards(*net, group, {.shards = 4});
    for (int step = 0; step < 3; ++step) {
      if (step == 1 && group.rank() == 1 && freezes) net->first.weight.set_requires_grad(false);
      if (step == 1 && group.rank() == 1 && !freezes) net->scale = ones({3});
      shards.step(8, [&](const VirtualRanks::Shard& shard) {
        const Tensor loss = sum((*net)(ones({shard.end - shard.begin, 6})));
        loss.backward();
        return loss;
      });
      must(step == 0, "the step in which it changes");
    }
  });
  for (const std::string& error : errors)
    require_contains(
        error,
        freezes
            ? "step 1: rank 1 has another set of frozen parameters than rank 0: first.weight is "
              "frozen there"
            : "on rank 1, before step 1: scale is another tensor");
}

}  // namespace ringgrad::test::ddp_mistakes_test
