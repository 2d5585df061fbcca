// The two halves of an all-reduce: together they give its bits, wherever both add in one order.
#include <cstring>

#include "ringgrad/core/random.h"
#include "ringgrad/distributed/collectives/ring.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::slices_test {

namespace {

struct Way {
  const char* channel;
  AllReduceAlgorithm algorithm;
};

// Numbers whose sum depends on the order in which they are added.
Tensor rough_numbers(int rank, int64_t n, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) {
    const auto random = philox(5, static_cast<uint64_t>(rank * 100'003 + i));
    values.push_back((uniform_from(random.word[0]) - 0.5) * std::pow(10.0, random.word[1] % 4));
  }
  const Tensor x = empty({n}, {.dtype = dtype});
  if (n > 0) copy_(x, tensor(values));
  return x;
}

Tensor in_shared_memory(ProcessGroup& group, const Tensor& x) {
  const auto bytes = static_cast<size_t>(x.numel() + 3) * itemsize(x.dtype());
  const Tensor y(group.allocate_shared(bytes), x.shape(), x.strides(), 3, x.dtype());
  copy_(y, x);
  return y;
}

void compare(ProcessGroup& group, int64_t n, DType dtype, ReduceOp op, bool shared) {
  const Tensor own = rough_numbers(group.rank(), n, dtype);
  const Tensor whole = shared ? in_shared_memory(group, own) : copy_of(own, {dtype});
  const Tensor x = shared ? in_shared_memory(group, own) : copy_of(own, {dtype});
  group.all_reduce(whole, op).wait();
  group.reduce_slices(x, op, {.async = true}).wait();
  const Range mine = chunk_of({0, static_cast<size_t>(n)}, group.size(), group.rank());
  const size_t item = itemsize(dtype);
  const auto* want = static_cast<const std::byte*>(whole.raw_data());
  const auto* got = static_cast<const std::byte*>(x.raw_data());
  const std::string what = str(name(op), " of ", n, " ", dtype, shared ? ", shared" : "");
  must(std::memcmp(got + mine.begin * item, want + mine.begin * item, mine.count() * item) == 0,
       what + ": the slice");
  group.gather_slices(x, {.async = true}).wait();
  must(n == 0 || std::memcmp(got, want, static_cast<size_t>(n) * item) == 0, what + ": the whole");
}

}  // namespace

TEST_CASE("the halves of an all-reduce have its bits", "[slices][quick][threads]") {
  const Way way = GENERATE(
      Way{"shm", AllReduceAlgorithm::Auto}, Way{"shm", AllReduceAlgorithm::Exchange},
      Way{"shm", AllReduceAlgorithm::GatherBroadcast}, Way{"shm", AllReduceAlgorithm::Ring},
      Way{"shm", AllReduceAlgorithm::SegmentedRing}, Way{"tcp", AllReduceAlgorithm::Auto});
  const int size = GENERATE(1, 2, 3, 4, 7);
  HostOptions options;
  options.algorithm = way.algorithm;
  options.segment_bytes = 4096;
  const auto errors =
      errors_of_ranks(host_groups(size, way.channel, options), [&](ProcessGroup& group) {
        for (const DType dtype :
             {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64})
          for (const int64_t n : {0, 1, size - 1, size + 1, 1000, 20'001})
            for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average})
              for (const bool shared : {false, true}) compare(group, n, dtype, op, shared);
      });
  for (const std::string& error : errors) CHECK(error.empty());
}

TEST_CASE("slices larger than a staging area", "[slices][threads]") {
  for (const int size : {2, 3})
    run_ddp_ranks(size, [&](ProcessGroup& group) {
      compare(group, 3'000'001, DType::Float32, ReduceOp::Average, /*shared=*/false);
      compare(group, 17, DType::Float32, ReduceOp::Sum, /*shared=*/false);
      compare(group, 3'000'001, DType::Float64, ReduceOp::Sum, /*shared=*/false);
    });
}

TEST_CASE("the halves of an all-reduce move as many bytes as it does", "[slices][quick][threads]") {
  const int size = GENERATE(2, 3, 4);
  std::vector<std::atomic<size_t>> bytes(static_cast<size_t>(size));
  const int64_t n = 120'000;  // has `size` equal slices
  const auto all_bytes = [&](auto body) {
    for (auto& count : bytes) count = 0;
    std::vector<std::unique_ptr<HostProcessGroup>> groups;
    int rank = 0;
    for (auto& transport : in_process_transports(size, "tcp")) {
      HostOptions options;
      // Auto may send more bytes than necessary, where that takes less time.
      options.algorithm = AllReduceAlgorithm::Direct;
      options.on_send = [&bytes, rank](int, std::span<const std::byte> payload) {
        bytes[static_cast<size_t>(rank)] += payload.size();
      };
      groups.push_back(std::make_unique<HostProcessGroup>(std::move(transport), options));
      ++rank;
    }
    for (const std::string& error : errors_of_ranks(std::move(groups), body)) CHECK(error.empty());
    return std::vector<size_t>(bytes.begin(), bytes.end());
  };
  const auto whole = all_bytes([&](ProcessGroup& group) { group.all_reduce(zeros({n})).wait(); });
  const auto halves = all_bytes([&](ProcessGroup& group) {
    const Tensor x = zeros({n});
    group.reduce_slices(x).wait();
    group.gather_slices(x).wait();
  });
  CHECK(halves == whole);
  for (const size_t sent : halves)
    CHECK(sent == 2 * static_cast<size_t>(n) * sizeof(float) * (size - 1) / size);
}

}  // namespace ringgrad::test::slices_test
