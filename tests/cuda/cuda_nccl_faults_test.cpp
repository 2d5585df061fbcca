// Ranks of an NCCL process group that disagree, stay away, throw or leave: an error on every rank,
// within the deadline.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/nccl_ranks.h"

namespace ringgrad::test::cuda_nccl_faults_test {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTimeout{1000};

// Returns the error of each rank, its type before the words. All ranks must end within a few times
// the deadline.
template <class Body>
std::vector<std::string> faults_of(int size, NcclAllReduce how, Body body) {
  const auto start = Clock::now();
  auto errors = errors_of_nccl(size, {.all_reduce = how, .segment_bytes = 64, .timeout = kTimeout},
                               [&](auto& group) {
                                 try {
                                   body(group);
                                 } catch (const TimeoutError& e) {
                                   throw TimeoutError(str("TimeoutError: ", e.what()));
                                 } catch (const DistributedError& e) {
                                   throw DistributedError(str("DistributedError: ", e.what()));
                                 } catch (const CudaError& e) {
                                   throw CudaError(str("CudaError: ", e.what()));
                                 }
                               });
  CHECK(Clock::now() - start < 20 * kTimeout);
  return errors;
}

struct TwoDtypes : nn::Module {
  nn::Parameter narrow = register_parameter("narrow", ones({3}));
  nn::Parameter wide = register_parameter("wide", ones({5}, {.dtype = DType::Float64}));
  Tensor forward(const Tensor& factors) override {
    return sum(ringgrad::to(narrow, DType::Float64)) * select(factors, 0, 0) +
           sum(wide) * select(factors, 0, 1);
  }
};

Tensor gradients(const ProcessGroup& group, int64_t n = 100) {
  return on(group, std::vector<double>(n, 1), DType::Float32);
}

}  // namespace

TEST_CASE("nccl: ranks that disagree are found out", "[quick][cuda][threads]") {
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const int size = GENERATE(2, 3);
  if (!enough_devices(size)) return;
  const auto errors = faults_of(size, how, [](ProcessGroup& group) {
    const Tensor x = gradients(group, group.rank() == 0 ? 300 : 400);
    group.all_reduce(x, ReduceOp::Sum, {.step = 12});
    to_vector<float>(x);
    for (int i = 0; i < 3; ++i) group.all_reduce(x);  // throws, if not before: the first one failed
  });
  for (const std::string& error : errors) {
    INFO(error);
    // The slowest may still be connecting.
    CHECK((contains(error, "Error: ") || contains(error, "ncclCommInitRankConfig")));
    // The emulator's NCCL gives the latter message.
    CHECK((contains(error, "ranks are out of step") || contains(error, "invalid usage")));
  }
}

TEST_CASE("nccl: a rank that stays away ends in a timeout on all of them",
          "[quick][cuda][threads]") {
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const int size = GENERATE(2, 3);
  if (!enough_devices(size)) return;
  std::atomic<bool> gave_up = false;
  const auto errors = faults_of(size, how, [&](ProcessGroup& group) {
    const Tensor x = gradients(group, 1);
    while (group.rank() == 1 && !gave_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    try {
      for (int i = 0; i < 3; ++i) {
        group.all_reduce(x, ReduceOp::Sum, {.step = 12 + i});
        // Or a device would still be at the first when the last has been queued.
        to_vector<float>(x);
      }
    } catch (...) {
      gave_up = true;
      throw;
    }
  });
  INFO(errors[0] << " | " << errors[1]);
  CHECK(contains(errors[0], "TimeoutError: all_reduce (sum) of 1 float32, step 12: "));
  CHECK((contains(errors[0], "rank 1 has not come to it") ||
         contains(errors[0], "not done after 1000 ms on rank")));
  for (const std::string& error : errors) CHECK(contains(error, "TimeoutError: "));
}

TEST_CASE("nccl: a rank that throws between two buckets", "[quick][cuda][threads]") {
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const int size = GENERATE(2, 3);
  if (!enough_devices(size)) return;
  const auto errors = faults_of(size, how, [](ProcessGroup& group) {
    std::vector<Work> works;
    for (int32_t bucket = 0; bucket < 4; ++bucket) {
      if (group.rank() == 1 && bucket == 2) throw Error("no memory for an activation");
      works.push_back(group.all_reduce(gradients(group), ReduceOp::Average,
                                       {.async = true, .step = 3, .bucket = bucket}));
    }
    for (Work& work : works) work.wait();
    group.barrier();
  });
  INFO(errors[0]);
  CHECK(errors[1] == "no memory for an activation");
  CHECK(
      (contains(errors[0], "bucket 2") || contains(errors[0], "rank 1 failed with an exception")));
  for (const std::string& error : errors) CHECK(!error.empty());
}

// The other rank's weights are not finite either from the next step on.
TEST_CASE("nccl: a gradient that is not finite names rank, parameter and step",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const int bad_step = GENERATE(0, 7);
  const int noticed_in = bad_step == 0 ? 0 : 49;
  const double bad = GENERATE(NAN, INFINITY);
  const int64_t first = std::isnan(bad) ? 0 : 40'000'000;  // of a run that goes on
  std::atomic<int> last_step = -1;
  const auto errors = errors_of_nccl(2, {.all_reduce = how}, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    net->to(group.device());
    DistributedDataParallel ddp(*net, group, {.caps = {64, 64}});
    ddp.set_step(first);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    const auto [x, target] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), group.size());
    for (int step = 0; step < 60; ++step) {
      last_step = step;
      optimizer.zero_grad();
      Tensor loss = cross_entropy(ddp(to(x, group.device())), to(target, group.device()));
      if (step == bad_step && group.rank() == 1)
        loss = loss + mean(net->middle.weight * full({}, bad, {.device = group.device()}));
      loss.backward();
      optimizer.step();
    }
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, str("the gradient of middle.weight is not finite on rank 1 in step ",
                              first + bad_step, ";")));
  }
  CHECK(last_step == noticed_in);
}

TEST_CASE("nccl: a gradient that is not finite is named with its step after a leap of set_step()",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const int64_t leap = int64_t{1} << 40;
  const bool before = GENERATE(false, true);  // in the step before the leap
  const auto errors = errors_of_nccl(2, {}, [&](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    net->to(group.device());
    DistributedDataParallel ddp(*net, group);
    const Tensor x = ones({2, 6}, {.device = group.device()});
    for (int step = 0; step < 60; ++step) {
      if (step == 5) ddp.set_step(leap + 5);
      Tensor loss = mean(ddp(x));
      if (step == (before ? 4 : 5) && group.rank() == 1)
        loss = loss + mean(net->middle.weight * full({}, NAN, {.device = group.device()}));
      ddp.zero_grad();
      loss.backward();
    }
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, str("the gradient of middle.weight is not finite on rank 1 in step ",
                              before ? 4 : leap + 5, ";")));
  }
}

// Gradients of each dtype lie in an array of their own.
TEST_CASE("nccl: a gradient that is not finite is named among those of other dtypes",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const int bad = GENERATE(0, 1);
  const auto errors = errors_of_nccl(2, {}, [&](ProcessGroup& group) {
    TwoDtypes net;
    net.to(group.device());
    DistributedDataParallel ddp(net, group);
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    std::vector<double> factors = {1, 1};
    if (group.rank() == 1) factors[static_cast<size_t>(bad)] = NAN;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      ddp(on(group, factors, DType::Float64)).backward();
      optimizer.step();
    }
  });
  const char* const name = bad == 0 ? "narrow" : "wide";
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(contains(error, str("the gradient of ", name, " is not finite on rank 1 in step 0")));
  }
}

TEST_CASE("nccl: a rank that leaves without a word", "[quick][cuda][threads]") {
  if (!enough_devices(3)) return;
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const auto errors = faults_of(3, how, [](ProcessGroup& group) {
    const Tensor x = gradients(group);
    group.all_reduce(x);
    if (group.rank() == 2) return;
    for (int i = 0; i < 3; ++i) group.all_reduce(x, ReduceOp::Sum, {.step = 5});
    to_vector<float>(x);
    group.all_reduce(x);
  });
  INFO(errors[0] << " | " << errors[1]);
  CHECK(errors[2].empty());
  for (int r = 0; r < 2; ++r) CHECK(contains(errors[static_cast<size_t>(r)], "Error: "));
}

TEST_CASE("nccl: who waits on the host hears at once why another rank gave up",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  std::atomic<bool> heard = false;
  std::optional<Failure> known;  // to rank 0, without a collective
  const auto errors = faults_of(2, NcclAllReduce::Library, [&](ProcessGroup& group) {
    if (group.rank() == 0) {
      group.abort("no more of this");
      known = group.failure();
      while (!heard) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    try {
      group.barrier();
      heard = true;
    } catch (...) {
      heard = true;
      throw;
    }
  });
  INFO(errors[1]);
  CHECK(contains(errors[1], "no more of this"));
  REQUIRE(known);
  CHECK(known->text == "no more of this");
}

#ifdef RINGGRAD_CUDA_EMULATED
// The hosts have met, but rank 1's device does not come to the transfer. Rank 0's host waits for
// it, and every call that asks for it has to wait for that thread.
TEST_CASE("nccl: a host that waits for the device does not keep it from being aborted",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const StreamOrderGuard order(StreamOrder::Lazy);
  emulator::config().pageable_copies_hold = true;
  const bool by_cuda = GENERATE(false, true);  // as a user's own code may copy
  std::atomic<bool> gave_up = false;
  std::atomic<bool> issued = false;
  const auto errors = faults_of(2, NcclAllReduce::Library, [&](ProcessGroup& group) {
    const Tensor x = gradients(group, 1);
    const cudaStream_t stream = cuda::native(current_stream(group.device()));
    const auto stay_away = [](void* until) {
      while (!*static_cast<std::atomic<bool>*>(until))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    if (group.rank() == 1) cudaLaunchHostFunc(stream, stay_away, &gave_up);
    group.all_reduce(x, ReduceOp::Sum, {.step = 12});
    if (group.rank() == 1) issued = true;
    while (!issued) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    float value = 0;
    if (group.rank() == 0 && by_cuda)
      cudaMemcpyAsync(&value, x.raw_data(), sizeof value, cudaMemcpyDefault, stream);
    else
      value = x.item<float>();
    gave_up = true;
    group.barrier();
  });
  for (const std::string& error : errors) {
    INFO(error);
    const std::string late = "all_reduce (sum) of 1 float32, step 12: not done after";
    // A rank whose host is already in the barrier hears of it there.
    CHECK((contains(error, "TimeoutError: " + late) ||
           contains(error, "TimeoutError: barrier: " + late)));
  }
}

namespace {

// Returns the output of a rank's process, and its exit status, when the other rank stays away and
// this one's device keeps waiting for it.
std::string last_words(const char* stream_order) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  FILE* pipe = popen(str("TEST_DEAF_DEVICE=1 RINGGRAD_EMU_STREAMS=", stream_order, " '", program,
                         "' 'nccl: a device that goes on waiting*' 2>&1")
                         .c_str(),
                     "r");
  REQUIRE(pipe != nullptr);
  std::string said;
  for (int c; (c = std::fgetc(pipe)) != EOF;) said += static_cast<char>(c);
  return str(said, "exit status ", WEXITSTATUS(pclose(pipe)));
}

void wait_for_a_rank_that_stays_away() {
  emulator::config().nccl_aborts = false;
  const NcclOptions options{.timeout = std::chrono::milliseconds(300),
                            .last_resort = std::chrono::milliseconds(300)};
  errors_of_nccl(2, options, [](ProcessGroup& group) {
    if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::hours(1));
    const Tensor x = gradients(group);
    group.all_reduce(x, ReduceOp::Sum, {.step = 12});
    to_vector<float>(x);
  });
}

}  // namespace

TEST_CASE("nccl: a device that goes on waiting is the end of the process, which says why",
          "[quick][cuda]") {
  if (!enough_devices(2)) return;
  if (!variable("TEST_DEAF_DEVICE").empty()) return wait_for_a_rank_that_stays_away();
  // While the collective is issued, and behind it.
  for (const char* stream_order : {"eager", "lazy"}) {
    const std::string said = last_words(stream_order);
    INFO(said);
    CHECK(contains(said, "ringgrad: all_reduce (sum) of 100 float32, step 12: "));
    CHECK(contains(said, "rank 1 has not come to it"));
    CHECK(contains(said, "and the device has not ended its work 300 ms later: this process ends"));
    CHECK(contains(said, "exit status 5"));
  }
}
#endif

}  // namespace ringgrad::test::cuda_nccl_faults_test
