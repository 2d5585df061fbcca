// Mistakes that DistributedDataParallel reports: models that differ, a backward that would average
// nothing, a step that a rank left out, numbers that are not finite.
#include <algorithm>
#include <limits>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/distributed/comm_hook.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::ddp_guard_test {

namespace {

template <class Body>
std::vector<std::string> errors_of(int size, Body body) {
  return errors_of_ranks(host_groups(size, "shm", {.timeout = std::chrono::seconds(20)}), body);
}

void backward(DistributedDataParallel& ddp, const ProcessGroup& group) {
  const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), group.size());
  cross_entropy(ddp(x), target).backward();
}

}  // namespace

TEST_CASE("a parameter that was frozen when it was wrapped stays so", "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    net->last.bias.set_requires_grad(false);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    net->last.bias.set_requires_grad(true);
    backward(ddp, group);
  });
  // The first rank has frozen it, and the others are told.
  const std::string said = "last.bias was frozen when the module was wrapped";
  REQUIRE(std::any_of(errors.begin(), errors.end(),
                      [&](const auto& error) { return error.find(said) != error.npos; }));
  for (const std::string& error : errors) REQUIRE(error != "");
}

TEST_CASE("models that differ are found at construction, and named", "[ddp][quick][threads]") {
  struct Net : nn::Module {
    nn::Linear a{6, 8};
    nn::Linear b;
    explicit Net(int64_t width) : b(8, width) {
      register_module("a", a);
      register_module("b", b);
    }
    Tensor forward(const Tensor& x) override { return b(a(x)); }
  };
  const auto shapes = errors_of(3, [](ProcessGroup& group) {
    const auto net = make_net<Net>(3, DType::Float32, group.rank() == 2 ? 5 : 3);
    DistributedDataParallel ddp(*net, group);
  });
  for (const std::string& error : shapes)
    CHECK(error.find("rank 2 has another model than rank 0: "
                     "'b.weight' [5, 8] float32 there, 'b.weight' [3, "
                     "8] float32 on rank 0 (number 2 of 4 and 4)") != std::string::npos);

  const auto dtypes = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Net>(3, group.rank() == 1 ? DType::Float64 : DType::Float32, 3);
    DistributedDataParallel ddp(*net, group);
  });
  for (const std::string& error : dtypes)
    require_contains(error, "'a.weight' [8, 6] float64 there");

  const auto counts = errors_of(2, [](ProcessGroup& group) {
    const auto mlp = make_net<Mlp>(3, DType::Float32);
    const auto cnn = make_net<SmallCnn>(3, DType::Float32);
    nn::Module& net = group.rank() == 0 ? static_cast<nn::Module&>(*mlp) : *cnn;
    DistributedDataParallel ddp(net, group);
  });
  for (const std::string& error : counts) require_contains(error, "rank 1 has another model");

  const auto frozen = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    if (group.rank() == 1) net->last.bias.set_requires_grad(false);
    DistributedDataParallel ddp(*net, group);
  });
  for (const std::string& error : frozen) require_contains(error, "nothing there, 'last.bias'");
}

TEST_CASE("a module without trained parameters is refused", "[ddp][quick][threads]") {
  const auto errors = errors_of(1, [](ProcessGroup& group) {
    nn::Module nothing;
    DistributedDataParallel ddp(nothing, group);
  });
  require_contains(errors[0], "no parameter that requires a gradient");
}

TEST_CASE("backward through the module instead of the wrapper is an error in that step",
          "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    {
      const auto guard = ddp.no_sync();  // says that it is meant
      mean((*net)(zeros({2, 6}))).backward();
    }
    mean((*net)(zeros({2, 6}))).backward();
  });
  for (const std::string& error : errors) {
    require_contains(error, "backward reached last.weight in step 1");
    require_contains(error, "no output of the wrapper is part of the loss");
  }
}

TEST_CASE("a NaN names the rank and the parameter", "[ddp][quick][threads]") {
  const double bad =
      GENERATE(std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity());
  const DType dtype = GENERATE(DType::Float32, DType::Float64);
  const auto errors = errors_of(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, dtype);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    for (int step = 0; step < 4; ++step) {
      const auto [x, target] = samples({6}, 3, dtype, 0, 8, group.rank(), group.size());
      const Tensor y = ddp(x);
      Tensor loss = cross_entropy(y, target);
      if (step == 2 && group.rank() == 1)
        loss = loss + mean(net->middle.weight * full({}, bad, {.dtype = dtype}));
      loss.backward();
    }
  });
  for (const std::string& error : errors)
    require_contains(error, "the gradient of middle.weight is not finite on rank 1 in step 2");
}

TEST_CASE("a loss scale may overflow where the check is off", "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.check_finite = false});
    mean(ddp(full({2, 6}, 1e38)) * full({}, 1e38)).backward();
  });
  for (const std::string& error : errors) CHECK(error.empty());
}

TEST_CASE(
    "a NaN of a pass without averaging is found, though the last pass does not use the parameter",
    "[ddp][quick][threads]") {
  struct Heads : nn::Module {
    nn::Linear body{6, 8};
    nn::Linear used{8, 3};
    nn::Linear rare{8, 3};
    Heads() {
      register_module("body", body);
      register_module("used", used);
      register_module("rare", rare);
    }
    Tensor forward(const Tensor& x) override { return used(body(x)); }
  };
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Heads>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    backward(ddp, group);
    {
      const auto guard = ddp.no_sync();
      const double factor = group.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
      mean(net->rare(ones({2, 8})) * full({}, factor)).backward();
    }
    backward(ddp, group);
  });
  for (const std::string& error : errors)
    require_contains(error, "the gradient of rare.weight is not finite on rank 1 in step 1");
}

TEST_CASE("a rank that leaves out a backward is named", "[ddp][quick][threads]") {
  const bool kept = GENERATE(false, true);  // what it computed lives on, or is gone
  const auto errors = errors_of(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    std::vector<Tensor> losses;
    for (int step = 0; step < 5; ++step) {
      const auto [x, target] = samples({6}, 3, DType::Float32, 0, 9, group.rank(), 3);
      const Tensor loss = cross_entropy(ddp(x), target);
      if (kept) losses.push_back(loss);
      if (step == 2 && group.rank() == 1) continue;
      loss.backward();
    }
  });
  for (const std::string& error : errors)
    require_contains(
        error,
        "rank 1 has left out a backward before step 2: no backward has used 1 of its forwards in "
        "training mode, and 0 of rank 0's");
}

TEST_CASE("ranks that weight or compress gradients in another way are out of step",
          "[ddp][quick][threads]") {
  const bool hooks = GENERATE(true, false);
  const bool later = GENERATE(true, false);
  const auto errors = errors_of(2, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallelOptions options{.usual_weight = 4};
    const CommHook hook = [](const GradBucket& b) { return b.average(b.flat); };
    if (group.rank() == 1 && hooks && !later) options.comm_hook = hook;
    if (group.rank() == 1 && !hooks) options.usual_weight = 8;
    DistributedDataParallel ddp(*net, group, options);
    if (group.rank() == 1 && hooks && later) ddp.register_comm_hook(hook);
    backward(ddp, group);
  });
  for (const std::string& error : errors)
    require_contains(error, "weight or compress gradients in another way");
}

TEST_CASE("an output that takes no part is no error, and evaluation communicates nothing",
          "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    ddp.eval();
    // The ranks do this unequally often, and with a graph.
    for (int i = 0; i <= group.rank(); ++i) ddp(zeros({1, 6}));
    ddp.train();
    {
      NoGradGuard no_grad;
      for (int i = 0; i <= group.rank(); ++i) ddp(zeros({1, 6}));
    }
    backward(ddp, group);
    ddp.check_identical();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("parameters that drifted apart are named", "[ddp][quick][threads]") {
  const auto errors = errors_of(3, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    ddp.check_identical();
    if (group.rank() != 1) net->middle.bias.data<float>()[3] += group.rank() == 2 ? 1 : 0;
    ddp.check_identical();
  });
  for (const std::string& error : errors)
    require_contains(error, "middle.bias differs from rank 0's on rank 2; something changed it");
}

TEST_CASE("a number that no step has is refused", "[ddp][quick]") {
  run_ddp_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    for (const int64_t step :
         {int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
      {
        DistributedDataParallel ddp(*net, group);
        must_be_refused(group, str("set_step(", step, ")"), [&] { ddp.set_step(step); });
      }
      VirtualRanks shards(*net, group, {.shards = 1});
      must_be_refused(group, str("set_step(", step, ")"), [&] { shards.set_step(step); });
    }
  });
}

TEST_CASE("a flag set on one rank is seen by all after the same step", "[ddp][quick][threads]") {
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    for (int step = 0; step < 4; ++step) {
      ddp.set_flag(step == 2 && group.rank() == 1);
      backward(ddp, group);
      must(ddp.flag() == (step == 2), "flag");
    }
  });
}

TEST_CASE("a backward that failed leaves the wrapper usable", "[ddp][quick][threads]") {
  struct Boom {};
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    bool thrown = false;
    {
      const ScopedHook boom(
          register_post_accumulate_grad_hook(net->last.bias, [](const Tensor&) { throw Boom(); }));
      try {
        backward(ddp, group);
      } catch (const Boom&) {
        thrown = true;
      }
    }
    must(thrown, "the exception must leave backward");
    ddp.zero_grad();
    backward(ddp, group);
    ddp.check_identical();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("what a failed backward has launched does not reach the next one's gradients",
          "[ddp][quick][threads]") {
  struct Boom {};
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    const auto alone = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    backward(ddp, group);
    {
      const ScopedHook boom(
          register_post_accumulate_grad_hook(net->first.bias, [](const Tensor&) { throw Boom(); }));
      if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      const auto [x, target] = samples({6}, 3, DType::Float32, 8, group.rank() == 0 ? 24 : 12);
      try {
        cross_entropy(ddp(x), target).backward();
      } catch (const Boom&) {
      }
    }
    ddp.zero_grad();
    backward(ddp, group);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8);
    cross_entropy((*alone)(x), target).backward();
    for (const auto& [name, parameter] : alone->named_parameters())
      for (const auto& [own_name, own] : net->named_parameters())
        must(own_name != name || relative_difference(to_vector<double>(own.grad()),
                                                     to_vector<double>(parameter.grad())) <
                                     training_tolerance(DType::Float32),
             "the gradient of " + name);
  });
  for (const std::string& error : errors) CHECK(error == "");
}

struct Boom : Error {
  Boom() : Error("boom") {}
};

TEST_CASE("a backward that throws on one rank throws on all, and the group lives on",
          "[ddp][quick][threads]") {
  const std::string where = GENERATE("last.bias", "first.bias");  // the first, or the last gradient
  const int zero = GENERATE(0, 1, 2);
  const bool shadows = GENERATE(false, true);  // rank 2 has no data
  const auto errors = errors_of(3, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    const auto untouched = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}, .zero = zero});
    const auto step = [&] {
      if (shadows && group.rank() == 2)
        ddp.shadow_step();
      else
        backward(ddp, group);
    };
    const auto zero_grad = [&] {
      if (zero > 0)
        ddp.step_share()->zero_grad();
      else
        ddp.zero_grad();
    };
    step();
    zero_grad();
    std::string error;
    {
      const auto parameters = net->named_parameters();
      const auto bad = std::ranges::find(parameters, where, &NamedTensors::value_type::first);
      const ScopedHook boom(register_post_accumulate_grad_hook(bad->second, [&](const Tensor&) {
        if (group.rank() == 1) throw Boom();
      }));
      try {
        step();
      } catch (const std::exception& e) {
        error = e.what();
      }
    }
    const char* told =
        "the backward of step 1 has thrown on rank 1: boom; all ranks leave the step out";
    must(group.rank() == 1 ? error == "boom" : error.find(told) != error.npos, "error: " + error);
    must(!group.failure(), "the group lives on");
    if (zero == 0)
      for (const double gradient : gradients(*net)) must(gradient == 0, "no gradient");
    zero_grad();
    step();
    ddp.check_identical();
    must(flat_values(*net) == flat_values(*untouched), "nothing has moved");
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("ranks whose backwards throw at different places go on together",
          "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    backward(ddp, group);
    const Tensor& bad = group.rank() == 0 ? net->last.bias : net->first.bias;
    std::string error;
    {
      const ScopedHook boom(
          register_post_accumulate_grad_hook(bad, [](const Tensor&) { throw Boom(); }));
      try {
        backward(ddp, group);
      } catch (const Boom& e) {
        error = e.what();
      }
    }
    must(error == "boom", "each rank has its own exception");
    ddp.zero_grad();
    backward(ddp, group);
    ddp.check_identical();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

struct Thrower : Mlp {
  bool throws = false;
  Tensor forward(const Tensor& x) override {
    const Tensor hidden = relu(first(x));
    if (throws) hidden.register_hook([](const Tensor&) -> Tensor { throw Boom(); });
    return last(relu(middle(hidden)));
  }
};

TEST_CASE("a backward that throws between two forwards leaves nothing out later",
          "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Thrower>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    backward(ddp, group);
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8);
    const Tensor first = ddp(x);
    net->throws = group.rank() == 1;  // so that the first forward is not reached there
    const Tensor second = ddp(x);
    net->throws = false;
    std::string error;
    try {
      (cross_entropy(first, target) + cross_entropy(second, target)).backward();
    } catch (const std::exception& e) {
      error = e.what();
    }
    must(error.find("boom") != error.npos, "error: " + error);
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      backward(ddp, group);
    }
    ddp.check_identical();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("a communication hook that throws on all ranks ends no group", "[ddp][quick][threads]") {
  const auto errors = errors_of(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    bool throws = false;
    const CommHook hook = [&](const GradBucket& bucket) {
      if (throws && bucket.index == 1) throw Boom();
      return bucket.average(bucket.flat);
    };
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}, .comm_hook = hook});
    backward(ddp, group);
    throws = true;
    try {
      backward(ddp, group);
      must(false, "the exception must leave backward");
    } catch (const Boom&) {
    }
    throws = false;
    ddp.zero_grad();
    backward(ddp, group);
    ddp.check_identical();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("a wrapper's state_dict has the module's names", "[ddp][quick][threads]") {
  run_ddp_ranks(1, [](ProcessGroup& group) {
    const auto net = make_net<SmallCnn>(3, DType::Float32);
    DistributedDataParallel ddp(*net, group);
    const auto own = net->state_dict();
    const auto wrapped = ddp.state_dict();
    must(own.size() == wrapped.size(), "as many");
    for (size_t i = 0; i < own.size(); ++i) must(own[i].first == wrapped[i].first, own[i].first);
    must(ddp.named_modules().size() == net->named_modules().size() + 1, "modules");
    ddp.eval();
    must(!net->conv1.is_training(), "eval() reaches the module's children");
  });
}

// The launcher reads this status of a rank that dies during backward, also before a bucket of the
// step is under way.
TEST_CASE("a rank's status has the step from the first gradient on", "[ddp][quick]") {
  const auto errors = errors_of_ranks(host_groups(1), [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    DDP ddp(*net, group);
    std::vector<int64_t> steps;  // when the last layer's bias has its gradient, which is the first
    const HookHandle hook = register_post_accumulate_grad_hook(
        net->parameters().back(), [&](const Tensor&) { steps.push_back(own_status().step - 1); });
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8);
    for (int step = 0; step < 3; ++step) cross_entropy(ddp(x), target).backward();
    must(steps == std::vector<int64_t>{0, 1, 2}, "steps");
  });
  CHECK(errors[0] == "");
}

}  // namespace ringgrad::test::ddp_guard_test
