// Ranks of an NCCL process group that disagree, stay away, throw or leave: an error on every rank, within the deadline.
#ifdef RINGGRAD_CUDA_EMULATED
#include <atomic>

#include "tests/catch.h"
#include "tests/nccl_ranks.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kTimeout{1000};

// What each rank threw, its type before the words. The ranks must come to an end within a few times the deadline.
template <class Body>
std::vector<std::string> faults_of(int size, NcclAllReduce how, Body body) {
  const auto start = Clock::now();
  auto errors = errors_of_nccl(size, {.all_reduce = how, .segment_bytes = 64, .timeout = kTimeout}, [&](auto& group) {
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

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

Tensor gradients(const ProcessGroup& group, int64_t n = 100) {
  return on(group, std::vector<double>(n, 1), DType::Float32);
}

}  // namespace

TEST_CASE("nccl: ranks that disagree are found out", "[quick][emulated]") {
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const int size = GENERATE(2, 3);
  const auto errors = faults_of(size, how, [](ProcessGroup& group) {
    const Tensor x = gradients(group, group.rank() == 0 ? 300 : 400);
    group.all_reduce(x, ReduceOp::Sum, {.step = 12});
    to_vector<float>(x);
    for (int i = 0; i < 3; ++i) group.all_reduce(x);  // throws, if not before: the first one failed
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(has(error, "Error: "));
    CHECK(has(error, "invalid usage"));
  }
}

TEST_CASE("nccl: a rank that stays away ends in a timeout on all of them", "[quick][emulated]") {
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const int size = GENERATE(2, 3);
  std::atomic<bool> gave_up = false;
  const auto errors = faults_of(size, how, [&](ProcessGroup& group) {
    const Tensor x = gradients(group, 1);
    while (group.rank() == 1 && !gave_up) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    try {
      for (int i = 0; i < 3; ++i) group.all_reduce(x, ReduceOp::Sum, {.step = 12 + i});
    } catch (...) {
      gave_up = true;
      throw;
    }
  });
  INFO(errors[0] << " | " << errors[1]);
  CHECK(has(errors[0], "TimeoutError: all_reduce of 1 float32, step 12: not done after 1000 ms on rank"));
  for (const std::string& error : errors) CHECK(has(error, "TimeoutError: "));
}

TEST_CASE("nccl: a rank that throws between two buckets", "[quick][emulated]") {
  const NcclAllReduce how = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring);
  const int size = GENERATE(2, 3);
  const auto errors = faults_of(size, how, [](ProcessGroup& group) {
    std::vector<Work> works;
    for (int32_t bucket = 0; bucket < 4; ++bucket) {
      if (group.rank() == 1 && bucket == 2) throw Error("no memory for an activation");
      works.push_back(
          group.all_reduce(gradients(group), ReduceOp::Average, {.async = true, .step = 3, .bucket = bucket}));
    }
    for (Work& work : works) work.wait();
    group.barrier();
  });
  INFO(errors[0]);
  CHECK(errors[1] == "no memory for an activation");
  CHECK((has(errors[0], "bucket 2") || has(errors[0], "rank 1 failed with an exception")));
  for (const std::string& error : errors) CHECK(!error.empty());
}

TEST_CASE("nccl: a rank that leaves without a word", "[quick][emulated]") {
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
  for (int r = 0; r < 2; ++r) CHECK(has(errors[static_cast<size_t>(r)], "Error: "));
}
#endif
