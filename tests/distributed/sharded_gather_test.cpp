// ZeRO's parameters travel while the next forward begins, and nobody uses one that has not come.
#include <atomic>

#include "ringgrad/distributed/sharded_optimizer.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::sharded_gather_test {

namespace {

const BucketCaps kSmallBuckets = {.first_bytes = 200, .bytes = 400};

bool happens(const std::atomic<bool>& event) {
  for (int wait = 0; wait < 4000 && !event; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return event;
}

// Two ranks that have taken four steps, and have the gradients of the fifth.
struct BeforeStep {
  BeforeStep(ProcessGroup& group, int zero, BucketCaps caps = kSmallBuckets)
      : net(make_net<Mlp>(3, DType::Float32)),
        ddp(*net, group, {.caps = caps, .zero = zero}),
        optimizer(ddp.named_parameters(), {.lr = 0.01}) {
    if (zero > 0) optimizer.share(ddp.step_share());
    for (int64_t step = 0; step < 5; ++step) {
      if (step > 0) optimizer.step();
      const auto [x, target] =
          samples({6}, 3, DType::Float32, step * 12, step * 12 + 12, group.rank(), group.size());
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
    }
  }
  Tensor weight_of(nn::Module& layer) const { return layer.named_parameters()[0].second; }

  const std::unique_ptr<Mlp> net;
  DistributedDataParallel ddp;
  optim::AdamW optimizer;
};

}  // namespace

TEST_CASE("a step ends before its parameters have come, and whoever uses them waits",
          "[sharded_gather][quick][threads]") {
  using Use = void (*)(BeforeStep&);
  const Use uses[] = {
      [](BeforeStep& run) { (void)flat_values(run.ddp); },
      [](BeforeStep& run) {
        (void)run.net->forward(ones({1, 6}));
      },
      [](BeforeStep& run) { (void)run.weight_of(run.net->last).sum().item<float>(); },
      // These are elements of one rank's slice.
      [](BeforeStep& run) { (void)run.weight_of(run.net->last).flatten()[47].item<float>(); },
      [](BeforeStep& run) { (void)run.weight_of(run.net->first).detach().data<float>()[0]; },
      [](BeforeStep& run) { run.weight_of(run.net->middle).mul_(1); },
      [](BeforeStep& run) { run.net->load_state_dict(run.net->state_dict()); },
  };
  const auto train = [](const char* channel, int zero, Use use) {
    std::vector<double> values;
    std::atomic<bool> returned = false;
    std::atomic<bool> late = false;
    run_ddp_ranks(
        2,
        [&](ProcessGroup& group) {
          BeforeStep run(group, zero);
          if (group.rank() == 1 && zero > 0) {
            must(happens(returned), "rank 0's step waits for rank 1's");
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
            late = true;
          }
          const auto version = [&] { return run.weight_of(run.net->last).storage()->version(); };
          const uint32_t before = version();
          run.optimizer.step();
          must(version() > before, "graphs that saved parameters notice the step");
          if (group.rank() == 1) return;
          returned = true;
          const NoGradGuard no_grad;
          use(run);
          must(zero == 0 || late, "a parameter was used before rank 1 has stepped its part");
          values = flat_values(run.ddp);
        },
        channel);
    return values;
  };
  const std::vector<double> plain = train("shm", 0, uses[0]);
  for (const char* channel : {"shm", "tcp"})
    for (const int zero : {1, 2})
      for (const Use& use : uses) {
        CAPTURE(channel, zero, &use - uses);
        CHECK(train(channel, zero, use) == plain);
      }
}

TEST_CASE("a layer waits for its own bucket alone", "[sharded_gather][quick][threads]") {
  std::atomic<bool> stepping = false;
  std::atomic<bool> first_read = false;
  std::atomic<int> gathers = 0;
  std::vector<std::unique_ptr<HostProcessGroup>> groups;
  for (auto& transport : in_process_transports(2, "tcp")) {
    HostOptions options;
    // Rank 1 holds back its part of every bucket but the one that is gathered first.
    if (groups.size() == 1)
      options.on_send = [&](int, std::span<const std::byte>) {
        if (stepping && ++gathers == 2)
          must(happens(first_read), "the first layer waits for the last one's bucket");
      };
    groups.push_back(std::make_unique<HostProcessGroup>(std::move(transport), options));
  }
  const auto errors = errors_of_ranks(std::move(groups), [&](ProcessGroup& group) {
    BeforeStep run(group, 1, {.first_bytes = 204, .bytes = 1 << 20});
    group.barrier().wait();
    if (group.rank() == 1) stepping = true;
    run.optimizer.step();
    if (group.rank() == 1) return;
    (void)to_vector<double>(run.weight_of(run.net->first));
    first_read = true;
    (void)to_vector<double>(run.weight_of(run.net->last));
    must(gathers > 1, "nothing was held back");
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("a parameter that could not be gathered is an error at every use",
          "[sharded_gather][quick][threads]") {
  const char* channel = GENERATE("shm", "tcp");
  const int zero = GENERATE(1, 2);
  Tensor survivor;
  const auto errors = errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    BeforeStep run(group, zero);
    if (group.rank() == 1) throw Error("rank 1 has no time");
    run.optimizer.step();
    survivor = run.weight_of(run.net->last);
    for (int attempt = 0; attempt < 3; ++attempt) {
      std::string said = "used";
      try {
        (void)run.net->forward(ones({1, 6}));
      } catch (const DistributedError& error) {
        said = error.what();
      }
      must(said.find("rank 1") != std::string::npos, said);
    }
  });
  CHECK(errors[0] == "");
  CHECK_THROWS_AS(survivor.raw_data(), DistributedError);
}

}  // namespace ringgrad::test::sharded_gather_test
