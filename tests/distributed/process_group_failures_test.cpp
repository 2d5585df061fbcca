// The effects of a failure on a group of ranks, and the rank that is named.
#include <algorithm>
#include <atomic>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::test::process_group_failures_test {

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The algorithms that send messages; Auto also takes memory that ranks share.
AllReduceAlgorithm any_algorithm() {
  return GENERATE(AllReduceAlgorithm::Auto, AllReduceAlgorithm::GatherBroadcast,
                  AllReduceAlgorithm::Exchange, AllReduceAlgorithm::Direct,
                  AllReduceAlgorithm::SegmentedRing);
}

}  // namespace

TEST_CASE("errors name step, bucket and parameters", "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(host_groups(2, channel), [](ProcessGroup& group) {
    const auto about = std::make_shared<const std::string>("conv2.weight conv1.weight");
    const Tensor x = full({1000}, 1);
    const int64_t step = group.rank() == 0 ? 318 : 319;
    const Work work = group.all_reduce(x, ReduceOp::Average,
                                       {.async = true, .step = step, .bucket = 1, .about = about});
    work.wait();
  });
  for (int r = 0; r < 2; ++r) {
    CAPTURE(channel, errors[r]);
    REQUIRE(
        contains(errors[r], str("all_reduce (average) of 1000 float32, step ", 318 + r,
                                ", bucket 1 (conv2.weight conv1.weight): ranks are out of step")));
    REQUIRE(contains(errors[r], "step 318"));
    REQUIRE(contains(errors[r], "step 319"));
  }
}

TEST_CASE("different collectives with the same number are found out at once",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int kind = GENERATE(0, 1, 2, 3);
  const auto errors = errors_of_ranks(host_groups(3, channel), [&](ProcessGroup& group) {
    const Tensor x = full({1000}, 1);
    if (group.rank() != 1)
      group.all_reduce(x).wait();
    else if (kind == 0)
      group.barrier().wait();
    else if (kind == 1)
      group.broadcast(x, 2).wait();
    else if (kind == 2)
      group.all_reduce(full({999}, 1)).wait();
    else
      group.all_reduce(full({1000}, 1, {.dtype = DType::Float64})).wait();
    group.barrier().wait();
  });
  for (const auto& error : errors) {
    CAPTURE(channel, kind, error);
    REQUIRE(contains(error, "out of step"));
    REQUIRE(contains(error, "rank 1"));
    REQUIRE(contains(error, "all_reduce (sum) of 1000 float32"));
  }
}

TEST_CASE("a rank that dies between collectives is known without a collective",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  std::string known;
  std::atomic<bool> outside = false;
  const auto errors = errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    group.barrier().wait();
    while (group.rank() == 1 && !outside) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (group.rank() == 1) throw Error("no more");
    outside = true;
    while (!group.failure()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    known = group.failure()->text;
  });
  CAPTURE(channel, errors);
  REQUIRE(known == "rank 1 failed with an exception");
}

TEST_CASE("a rank that leaves in good order is no failure", "[process_group][quick][threads]") {
  const auto errors = errors_of_ranks(host_groups(2), [](ProcessGroup& group) {
    group.barrier().wait();
    if (group.rank() == 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (group.failure()) throw Error(group.failure()->text);
  });
  REQUIRE(errors[0] == "");
}

TEST_CASE("a rank that dies between collectives is named by the next one, and by all that follow",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const AllReduceAlgorithm algorithm = any_algorithm();
  const auto errors =
      errors_of_ranks(host_groups(3, channel, {.algorithm = algorithm}), [](ProcessGroup& group) {
        const Tensor x = full({10}, 1);
        group.all_reduce(x).wait();
        if (group.rank() == 1) throw Error("no more");
        std::string first;
        for (int i = 0; i < 2; ++i) {
          try {
            group.all_reduce(x, ReduceOp::Sum, {.step = 2 + i}).wait();
          } catch (const DistributedError& error) {
            if (i == 1 && error.what() == first) throw;
            first = error.what();
          }
        }
      });
  for (int r : {0, 2}) {
    CAPTURE(channel, algorithm, errors[r]);
    REQUIRE(contains(errors[r], "rank 1 failed with an exception"));
  }
}

TEST_CASE("a missing rank is named at the deadline by all who wait",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const AllReduceAlgorithm algorithm = any_algorithm();
  std::atomic<int> failed = 0;
  const CollectiveOptions hurried{.step = 2, .timeout = std::chrono::milliseconds(100)};
  const auto errors =
      errors_of_ranks(host_groups(4, channel, {.algorithm = algorithm}), [&](ProcessGroup& group) {
        const Tensor x = full({10}, 1);
        group.all_reduce(x, ReduceOp::Sum, {.step = 1}).wait();
        if (group.rank() == 2)
          while (failed < 3)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));  // "computes" for too long
        try {
          group.all_reduce(x, ReduceOp::Sum, hurried).wait();
          // Rank 2 may have found everything it needed, sent before the others gave up.
          group.barrier(hurried).wait();
        } catch (const TimeoutError&) {
          ++failed;
          throw;
        }
      });
  for (int r = 0; r < 4; ++r) {
    CAPTURE(channel, algorithm, r, errors[r]);
    REQUIRE(contains(errors[r], "rank 2 has not come to it: it is outside of collectives"));
    REQUIRE(contains(errors[r], "step 1"));
  }
}

TEST_CASE("a receive that lasts too long does not blame the last collective",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  std::atomic<bool> failed = false;
  const auto errors = errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    const Tensor x = full({10}, 1);
    group.all_reduce(x).wait();
    while (group.rank() == 1 && !failed) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (group.rank() == 1) return;
    try {
      group.recv(x, 1, {.timeout = std::chrono::milliseconds(100)}).wait();
    } catch (const TimeoutError&) {
      failed = true;
      throw;
    }
  });
  REQUIRE(
      contains(errors[0],
               str("nothing moved for 0.1 s in a send or receive; no data comes from rank 1 over ",
                   channel)));
}

TEST_CASE("abort ends everybody's wait with the reason", "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(host_groups(3, channel), [](ProcessGroup& group) {
    if (group.rank() == 1) group.abort("loss is NaN on rank 1, step 7");
    group.barrier().wait();
  });
  for (const auto& error : errors) REQUIRE(contains(error, "loss is NaN on rank 1, step 7"));
}

TEST_CASE("where a rank's program gives up, nobody says that a rank has died",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const bool async = GENERATE(false, true);
  const auto errors = errors_of_ranks(host_groups(3, channel), [&](ProcessGroup& group) {
    if (group.rank() == 1) group.abort("loss is NaN", FailureKind::Failed);
    for (int time = 0; time < 2; ++time) {
      try {
        group.all_reduce(zeros({10}), ReduceOp::Sum, {.async = async}).wait();
        throw Error("goes on");
      } catch (const GivenUpError& error) {
        if (!contains(error.what(), "loss is NaN")) throw;
      }
    }
  });
  for (const auto& error : errors) REQUIRE(error == "");
}

TEST_CASE("a group that goes with work under way does not wait for it",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(host_groups(2, channel), [](ProcessGroup& group) {
    const Tensor x = full({10}, 1);
    const Work work = group.all_reduce(x, ReduceOp::Sum, {.async = group.rank() == 0});
    if (group.rank() == 1) group.barrier().wait();
  });
  REQUIRE(errors[0].empty());
  if (!errors[1].empty()) REQUIRE(contains(errors[1], "rank 0"));
}

// Some work is never waited for: issued before and after the group has failed, and meanwhile.
TEST_CASE("work that is dropped holds nobody up, whatever becomes of its group",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto how = GENERATE("rank 1 leaves", "rank 1 throws", "rank 1 aborts", "ranks disagree");
  CAPTURE(channel, how);
  const std::string end = how;
  std::vector<Work> kept(2);  // beyond their groups
  const auto errors = errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    const Tensor x = full({100'000}, 1);
    const Tensor request = full({10}, 1);
    const Tensor late = full({10}, 1);
    const bool second = group.rank() == 1;
    const CollectiveOptions async{.async = true};
    group.all_reduce(x, ReduceOp::Sum, async);
    (void)group.recv(request, 1 - group.rank(), async);  // no rank sends it
    group.barrier().wait();
    if (second && end == "rank 1 leaves") return;
    if (second && end == "rank 1 throws") throw Error("on purpose");
    if (second && end == "rank 1 aborts") group.abort("on purpose", FailureKind::Failed);
    if (second && end == "ranks disagree") group.broadcast(x, 0, async);
    group.all_reduce(x, ReduceOp::Average, async);
    kept[group.rank()] = group.recv(late, 1 - group.rank(), {.async = true, .tag = 1});
    group.all_reduce(late, ReduceOp::Sum, async);
    try {
      group.barrier().wait();
    } catch (const std::exception&) {
      (void)group.all_reduce(x, ReduceOp::Sum, async);
      (void)group.send(late, 1 - group.rank(), async);
      throw;
    }
  });
  REQUIRE(!errors[0].empty());
  for (const Work& work : kept) {
    std::string error = "none";
    try {
      work.wait();
    } catch (const std::exception& e) {
      error = e.what();
    }
    CAPTURE(error);
    REQUIRE(work.done());
  }
}

TEST_CASE("an exception of any type ends the group", "[process_group][quick][threads]") {
  std::atomic<int> messages = 0;
  HostOptions options;
  options.on_send = [&](int, std::span<const std::byte>) {
    if (messages++ == 0) throw 7;
  };
  auto errors = errors_of_ranks(host_groups(3, "tcp", options), [](ProcessGroup& group) {
    try {
      group.all_reduce(full({1000}, 1)).wait();
    } catch (int) {
      throw Error("seven");
    }
  });
  std::ranges::sort(errors, {}, [](const std::string& error) { return error.size(); });
  REQUIRE(errors[0] == "seven");
  for (const int other : {1, 2})
    REQUIRE(contains(errors[other], "an exception that is no std::exception"));
}

}  // namespace ringgrad::test::process_group_failures_test
