// DistributedDataParallel over NCCL in a step that is recorded as a CUDA graph. It must give the
// same bits as the step itself. Ranks that disagree, stay away, throw or leave while others replay
// must end in an error on every rank.
#include <atomic>
#include <cmath>
#include <optional>

#include "ringgrad/core/device/captured_step.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/nccl_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::cuda_nccl_capture_test {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTimeout{1000};
constexpr int64_t kSteps = 7;  // CapturedStep replays 5 of these

// A rank's network, its batch in fixed memory, and its step, which may be recorded.
class Trainer {
 public:
  explicit Trainer(ProcessGroup& group,
                   DistributedDataParallelOptions options = {.caps = {300, 300}})
      : rank_(group.rank()),
        ranks_(group.size()),
        net_(make_net<NormedCnn>(3 + group.rank(), DType::Float32)) {
    net_->to(group.device());
    ddp_.emplace(*net_, group, std::move(options));
    optimizer_.emplace(ddp_->named_parameters(), optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
    const auto [x, target] = batch(0);
    x_ = to(x, group.device());
    target_ = to(target, group.device());
  }

  void compute() {
    optimizer_->zero_grad();
    cross_entropy((*ddp_)(x_), target_).backward();
    optimizer_->step();
  }
  // The batch and the learning rate of a step.
  void prepare(int64_t step) {
    const auto [x, target] = batch(step);
    copy_(x_, x);
    copy_(target_, target);
    optimizer_->set_lr(0.05 / static_cast<double>(step + 1));
    ddp_->set_step(step);
  }
  DistributedDataParallel& ddp() { return *ddp_; }
  void spoil() { fill_(x_, NAN); }

 private:
  Samples batch(int64_t step) const {
    return samples({1, 8, 8}, 3, DType::Float32, 8 * step, 8 * step + 8, rank_, ranks_);
  }

  int rank_;
  int ranks_;
  std::unique_ptr<NormedCnn> net_;
  std::optional<DistributedDataParallel> ddp_;
  std::optional<optim::SGD> optimizer_;
  Tensor x_;
  Tensor target_;
};

// Returns the parameters that rank 0 has learnt. All ranks have the same.
std::vector<double> train(int ranks, bool captured, NcclAllReduce how) {
  std::vector<double> result;
  run_nccl(ranks, {.all_reduce = how, .segment_bytes = 100}, [&](ProcessGroup& group) {
    Trainer trainer(group);
    CapturedStep recorded(group.device(), [&] { trainer.compute(); });
    for (int64_t step = 0; step < kSteps; ++step) {
      trainer.prepare(step);
      captured ? recorded() : trainer.compute();
    }
    must(trainer.ddp().totals().steps == kSteps, "steps are counted");
    must(trainer.ddp().log().step == kSteps - 1, "and numbered");
    trainer.ddp().check_identical();
    if (group.is_main_process()) result = flat_values(trainer.ddp());
  });
  return result;
}

std::atomic<bool> some_rank_ended = false;

// Returns the error of each rank. `body` is called with the number of each step before the step; it
// may take the step itself, or leave it out (false). All ranks must end within a few times the
// deadline.
template <class Body>
std::vector<std::string> faults_of(int size, NcclAllReduce how, Body body) {
  some_rank_ended = false;
  const auto start = Clock::now();
  const NcclOptions options{.all_reduce = how, .segment_bytes = 64, .timeout = kTimeout};
  auto errors = errors_of_nccl(size, options, [&](ProcessGroup& group) {
    Trainer trainer(group);
    CapturedStep recorded(group.device(), [&] { trainer.compute(); });
    try {
      for (int64_t step = 0; step < 12; ++step) {
        trainer.prepare(step);
        if (body(group, trainer, step)) recorded();
      }
      trainer.ddp().check_identical();
    } catch (...) {
      some_rank_ended = true;
      throw;
    }
  });
  CHECK(Clock::now() - start < 20 * kTimeout);
  return errors;
}

}  // namespace

TEST_CASE("nccl: a captured step with DistributedDataParallel has the bits of the step itself",
          "[quick][cuda][threads]") {
  const int ranks = GENERATE(2, 3);
  if (!enough_devices(ranks)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const auto expected = train(ranks, false, how);
  const StreamOrderGuard order(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  INFO(ranks << " ranks");
  CHECK(train(ranks, true, how) == expected);
}

TEST_CASE("nccl: a rank that leaves out a replay is named with its step",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const auto errors = faults_of(2, how, [](ProcessGroup& group, Trainer&, int64_t step) {
    return group.rank() == 0 || step != 5;
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, "ranks are out of step: "));
    CHECK((contains(error, "rank 0 is in replay of recorded step 1, step 5") ||
           contains(error, "rank 0 in replay of recorded step 1, step 5")));
    CHECK((contains(error, "rank 1 is in replay of recorded step 1, step 6") ||
           contains(error, "rank 1 in replay of recorded step 1, step 6")));
  }
}

TEST_CASE("nccl: a rank that takes the step itself where others replay it is named",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const auto errors = faults_of(2, how, [](ProcessGroup& group, Trainer& trainer, int64_t step) {
    if (group.rank() == 0 || step != 5) return true;
    trainer.compute();
    return false;
  });
  for (const std::string& error : errors) {
    INFO(error);
    const bool hosts = contains(error, "ranks are out of step: ") &&
                       contains(error, "replay of recorded step 1, step 5") &&
                       contains(error, "step 5, bucket 0");
    // The emulator's NCCL may come first.
    CHECK((hosts || contains(error, "ncclAllReduce in a graph of ") ||
           contains(error, "invalid usage")));
  }
}

TEST_CASE("nccl: ranks that record or replay in another order are named",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const bool when_recorded = GENERATE(true, false);
  const auto errors = errors_of_nccl(2, {.timeout = kTimeout}, [&](ProcessGroup& group) {
    Trainer a(group);
    Trainer b(group);
    for (int i = 0; i < 2; ++i) {
      a.compute();
      b.compute();
    }
    const bool first = group.rank() == 0;
    auto record = [&](Trainer& trainer) {
      return device_backend(DeviceType::CUDA).capture(group.device().index, [&] {
        trainer.compute();
      });
    };
    const Stream stream = current_stream(group.device());
    if (when_recorded) {
      const auto graph = record(first ? a : b);
      graph->launch(stream);
    } else {
      const auto graph_a = record(a);
      const auto graph_b = record(b);
      (first ? graph_a : graph_b)->launch(stream);
      (first ? graph_b : graph_a)->launch(stream);
    }
    a.ddp().check_identical();
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, "ranks are out of step: "));
    if (when_recorded) CHECK(contains(error, "these are of other parameters"));
    if (!when_recorded) CHECK(contains(error, "replay of recorded step 2"));
  }
}

TEST_CASE("nccl: a rank that stays away while others replay is named", "[quick][cuda][threads]") {
  const int size = GENERATE(2, 3);
  if (!enough_devices(size)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const auto errors = faults_of(size, how, [](ProcessGroup& group, Trainer&, int64_t step) {
    while (group.rank() == 1 && step == 5 && !some_rank_ended)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, "replay of recorded step 1, step 5: "));
    CHECK((contains(error, "rank 1 has not come to it") ||
           contains(error, "another rank is missing")));
  }
}

TEST_CASE("nccl: a rank that ends while others replay is named", "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const auto errors = faults_of(2, how, [](ProcessGroup& group, Trainer&, int64_t step) {
    if (group.rank() == 1 && step == 5) throw Error("no memory for an activation");
    return true;
  });
  INFO(errors[0]);
  CHECK(errors[1] == "no memory for an activation");
  // step 4, where this rank had not come to its end when the other one ended
  CHECK(
      (contains(errors[0], "replay of recorded step 1, step 5: rank 1 failed with an exception") ||
       contains(errors[0], "replay of recorded step 1, step 4: rank 1 failed with an exception")));
}

TEST_CASE("nccl: after a failure a new group records the step anew", "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const auto expected = train(2, false, how);
  for (int64_t bad_step = 1; bad_step < 5; ++bad_step) {  // before, while and after it is recorded
    const auto errors = faults_of(2, how, [&](ProcessGroup& group, Trainer&, int64_t step) {
      if (group.rank() == 1 && step == bad_step) throw Error("no memory for an activation");
      return true;
    });
    CHECK(contains(errors[0], "rank 1 failed with an exception"));
    CHECK(train(2, true, how) == expected);
  }
}

TEST_CASE("nccl: a gradient that is not finite in a replay is named, and a flag comes through",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  std::atomic<int> flags = 0;
  const auto errors = errors_of_nccl(2, {}, [&](ProcessGroup& group) {
    Trainer trainer(group);
    CapturedStep recorded(group.device(), [&] { trainer.compute(); });
    for (int64_t step = 0; step < 120; ++step) {
      trainer.prepare(step);
      trainer.ddp().set_flag(group.rank() == 1);
      if (step == 70 && group.rank() == 1) trainer.spoil();
      recorded();
      if (step == 49) flags += trainer.ddp().flag() ? 1 : 0;
    }
  });
  CHECK(flags == 2);
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, "is not finite on rank 1 in step 70;"));
  }
}

TEST_CASE("nccl: many replays are no gradient that is not finite", "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  run_nccl(2, {}, [](ProcessGroup& group) {
    Trainer trainer(group);
    CapturedStep recorded(group.device(), [&] { trainer.compute(); });
    for (int64_t step = 0; step < 120; ++step) {
      trainer.ddp().set_step(step * 500'000);  // as if each stood for so many
      recorded();
    }
  });
}

TEST_CASE("nccl: a replay brings what was recorded, and refuses anything else",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  run_nccl(2, {}, [](ProcessGroup& group) {
    const auto record = [&](Trainer& trainer) {
      return device_backend(DeviceType::CUDA).capture(group.device().index, [&] {
        trainer.compute();
      });
    };
    const Stream stream = current_stream(group.device());
    Trainer trainer(group, {.caps = {300, 300}, .weighting = Weighting::Given});
    DistributedDataParallel& ddp = trainer.ddp();
    ddp.set_weight(4);
    must_be_refused(group, "the first step cannot be recorded", [&] { record(trainer); });
    for (int i = 0; i < 2; ++i) {
      ddp.set_weight(4);
      trainer.compute();
    }
    ddp.set_weight(4);
    const auto graph = record(trainer);
    ddp.set_weight(4);
    graph->launch(stream);
    ddp.set_weight(5);
    must_be_refused(group, "the weight is 5, and was 4 when the step was recorded",
                    [&] { graph->launch(stream); });
    ddp.set_weight(5);
    trainer.compute();
    ddp.skip_step();
    must_be_refused(group, "skip_step() before a replay", [&] { graph->launch(stream); });
    ddp.set_weight(4);
    trainer.compute();  // skipped
    must(ddp.skipped(), "the step itself is skipped");
    graph->launch(stream);
    must(!ddp.skipped(), "a replay is not");
    ddp.set_ready_order(ddp.ready_order(), BucketCaps{100, 100});
    must_be_refused(group, "has planned its buckets anew since", [&] { graph->launch(stream); });
  });
}

// A collective that is not waited for keeps its tensors until it has ended, on the stream on which
// it began.
TEST_CASE(
    "nccl: a collective that nobody waits for does not spoil a recording in which it is let go",
    "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const StreamOrderGuard order(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  run_nccl(2, {}, [](ProcessGroup& group) {
    const Tensor x = on(group, {1, 2}, DType::Float32);
    const Tensor y = on(group, {5}, DType::Float32);
    const auto record = [&](const std::function<void()>& body) {
      return device_backend(DeviceType::CUDA).capture(group.device().index, body);
    };
    std::optional<Work> outside = group.all_reduce(x, ReduceOp::Sum, {.async = true});
    std::optional<Work> inside;
    const auto graph = record([&] {
      outside.reset();
      kernels::affine(y, y, 2, 0);
      inside = group.all_reduce(y, ReduceOp::Sum, {.async = true});
      inside.reset();  // which joins the recording, so that it may end
      kernels::affine(y, y, 3, 0);
    });
    graph->launch(current_stream(group.device()));
    must_be(x, {2, 4}, "an all-reduce before the recording");
    must_be(y, {60}, "one in it");
  });
}

TEST_CASE("nccl: ranks that record different collectives are named before any replay",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const auto errors = errors_of_nccl(2, {.timeout = kTimeout}, [](ProcessGroup& group) {
    const Tensor x =
        on(group, std::vector<double>(group.rank() == 0 ? 300 : 400, 1), DType::Float32);
    const auto graph = device_backend(DeviceType::CUDA).capture(group.device().index, [&] {
      group.all_reduce(x);
    });
    group.barrier();
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, "ranks are out of step: "));
    CHECK((contains(error, "all_reduce (sum) of 300 float32") &&
           contains(error, "all_reduce (sum) of 400 float32")));
  }
}

}  // namespace ringgrad::test::cuda_nccl_capture_test
