// Ranks that do not do the same in a step: more forwards here than there, no data, data that has
// run out.
#include <algorithm>

#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::ddp_uneven_test {

namespace {

Tensor loss_of(nn::Module& model, int64_t begin, int64_t end, int rank = 0, int ranks = 1) {
  const auto [x, target] = samples({6}, 3, DType::Float64, begin, end, rank, ranks);
  return cross_entropy(model(x), target);
}

std::vector<double> averaged_over(ProcessGroup& group, const nn::Module& module) {
  std::vector<double> all;
  for (const Tensor& parameter : module.parameters()) {
    const Tensor mean = parameter.grad().detach();
    group.all_reduce(mean, ReduceOp::Average).wait();
    const auto values = to_vector<double>(mean);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace

TEST_CASE("episodes of unequal length: several forwards before one backward",
          "[ddp][quick][threads]") {
  run_ddp_ranks(3, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    const auto alone = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    for (int step = 0; step < 3; ++step) {
      const auto episode = [&](nn::Module& model) {
        Tensor loss = loss_of(model, step, step + 1);
        for (int turn = 1; turn < 1 + (group.rank() + step) % 3; ++turn)
          loss = loss + loss_of(model, 10 * turn + group.rank(), 10 * turn + group.rank() + 1);
        model.zero_grad();
        loss.backward();
      };
      episode(ddp);
      episode(*alone);
      must(relative_difference(gradients(*net), averaged_over(group, *alone)) < 1e-12,
           "the mean of the ranks' losses");
    }
    ddp.check_identical();
  });
}

TEST_CASE("a rank may find out after its forward that it has no data", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    const auto alone = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      alone->zero_grad();
      const Tensor loss = loss_of(ddp, 8 * step, 8 * step + 8, group.rank(), 2);
      if (group.rank() == 1 && step == 1)
        must(ddp.shadow_step(), "rank 0 has data");
      else
        loss.backward();
      (step == 1 ? loss_of(*alone, 8, 16, 0, 2) : loss_of(*alone, 8 * step, 8 * step + 8))
          .backward();
      must(relative_difference(gradients(*net), gradients(*alone)) < 1e-12,
           "rank 1's rows count where it has some");
    }
  });
}

TEST_CASE("a rank without data beside two forwards a step", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    const int steps = group.rank() == 0 ? 3 : 0;
    for (int step = 0; step < steps; ++step) {
      ddp.zero_grad();
      (loss_of(ddp, 8 * step, 8 * step + 4) + loss_of(ddp, 8 * step + 4, 8 * step + 8)).backward();
    }
    int shadowed = 0;
    while (ddp.shadow_step()) ++shadowed;
    must(steps + shadowed == 3, "as many steps on both ranks");
  });
}

TEST_CASE("a rank without data beside forwards that no backward uses", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    const auto step = [&](int number) {  // as a generator in the discriminator's step
      (void)loss_of(ddp, 8 * number, 8 * number + 4);
      ddp.zero_grad();
      loss_of(ddp, 8 * number + 4, 8 * number + 8).backward();
    };
    for (int epoch = 0; epoch < 2; ++epoch) {
      const int steps = group.rank() == 0 ? 3 : 1;
      for (int number = 0; number < steps; ++number) step(number);
      int shadowed = 0;
      while (ddp.shadow_step()) ++shadowed;
      must(steps + shadowed == 3, "as many steps on both ranks");
    }
  });
}

TEST_CASE("data that runs out among the passes of a step counts as far as it went",
          "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    const auto alone = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    {
      const auto guard = ddp.no_sync();
      loss_of(ddp, 0, 8, group.rank(), 2).backward();
    }
    if (group.rank() == 0)
      loss_of(ddp, 8, 12).backward();
    else
      must(ddp.shadow_step(), "there was data");
    loss_of(*alone, 0, 8, group.rank(), 2).backward();
    if (group.rank() == 0) loss_of(*alone, 8, 12).backward();
    must(relative_difference(gradients(*net), averaged_over(group, *alone)) < 1e-12,
         "what there was, of both");
  });
}

TEST_CASE("nothing can be shadowed where nothing is averaged", "[ddp][quick][threads]") {
  run_ddp_ranks(2, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float64);
    DistributedDataParallel ddp(*net, group);
    loss_of(ddp, 0, 8).backward();
    const auto guard = ddp.no_sync();
    must_be_refused(group, "shadow_step: inside no_sync()", [&] {
      for (int i = 0; i < 1000; ++i)
        if (!ddp.shadow_step()) break;
    });
  });
}

}  // namespace ringgrad::test::ddp_uneven_test
