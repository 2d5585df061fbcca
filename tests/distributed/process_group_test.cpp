// The collectives on tensors, through every algorithm; order and asynchrony.
#include "ringgrad/distributed/process_groups/host_process_group.h"

#include <array>
#include <cstring>
#include <filesystem>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::test::process_group_test {

namespace {

template <class Body>
void run_groups(int size, const char* channel, HostOptions options, Body body) {
  const auto errors = errors_of_ranks(host_groups(size, channel, options), body);
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) FAIL("rank " << r << ": " << errors[r]);
}

void must(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

// Small integers that differ by rank and place, in any dtype.
Tensor numbers(int rank, int64_t n, DType dtype = DType::Float32) {
  const Tensor x = empty({n}, {.dtype = dtype});
  for (int64_t i = 0; i < n; ++i) {
    const int value = static_cast<int>((i * 7 + rank * 3) % 11) - 4;
    visit_dtype("numbers", dtype,
                [&]<class T>() { x.data<T>()[i] = static_cast<T>(static_cast<float>(value)); });
  }
  return x;
}

double sum_over_ranks(int size, int64_t i) {
  double sum = 0;
  for (int r = 0; r < size; ++r) sum += static_cast<double>((i * 7 + r * 3) % 11) - 4;
  return sum;
}

double at(const Tensor& x, int64_t i) {
  return visit_dtype("at", x.dtype(), [&]<class T>() {
    return static_cast<double>(static_cast<T>(x.data<T>()[i]));
  });
}

bool is_sum(const Tensor& x, int size) {
  for (int64_t i = 0; i < x.numel(); ++i)
    if (at(x, i) != sum_over_ranks(size, i)) return false;
  return true;
}

Tensor shared_copy(ProcessGroup& group, const Tensor& x, int64_t skip = 0) {
  const auto bytes = static_cast<size_t>(x.numel() + group.size()) * itemsize(x.dtype());
  const Tensor y(group.allocate_shared(bytes), x.shape(), x.strides(), skip, x.dtype());
  copy_(y, x);
  return y;
}

}  // namespace

TEST_CASE("all_reduce by every algorithm, dtype and size", "[process_group][quick][threads]") {
  const auto [channel, algorithm] =
      GENERATE(table<const char*, AllReduceAlgorithm>({{"shm", AllReduceAlgorithm::Auto},
                                                       {"shm", AllReduceAlgorithm::GatherBroadcast},
                                                       {"shm", AllReduceAlgorithm::Exchange},
                                                       {"shm", AllReduceAlgorithm::Direct},
                                                       {"shm", AllReduceAlgorithm::Ring},
                                                       {"shm", AllReduceAlgorithm::SegmentedRing},
                                                       {"tcp", AllReduceAlgorithm::Auto}}));
  const int size = GENERATE(1, 2, 3, 4, 7);
  run_groups(
      size, channel, {.algorithm = algorithm, .segment_bytes = 100}, [&](ProcessGroup& group) {
        for (DType dtype :
             {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64}) {
          for (int64_t n : {0, 1, size - 1, size, 1000}) {
            const Tensor x = numbers(group.rank(), n, dtype);
            group.all_reduce(x).wait();
            must(is_sum(x, size), "all_reduce");
          }
        }
      });
}

TEST_CASE("all_reduce in shared memory", "[process_group][quick][threads]") {
  const int size = GENERATE(1, 2, 3, 4, 7);
  run_groups(size, "shm", {}, [&](ProcessGroup& group) {
    for (DType dtype :
         {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64}) {
      for (int64_t n : {0, 1, size - 1, size, 1000, 5000}) {
        // At different offsets.
        const Tensor x = shared_copy(group, numbers(group.rank(), n, dtype), group.rank());
        group.all_reduce(x).wait();
        must(is_sum(x, size), "all shared");

        const Tensor mixed = numbers(group.rank(), n, dtype);
        const Tensor y = shared_copy(group, mixed);
        // Half of the ranks have other memory.
        const Tensor& own = group.rank() % 2 == 0 ? mixed : y;
        group.all_reduce(own).wait();
        must(is_sum(own, size), "mixed");
      }
    }
  });
}

TEST_CASE("memory that ranks share keeps no file open", "[process_group][quick][threads]") {
  std::array<ptrdiff_t, 2> open_files;
  run_groups(3, "shm", {}, [&](ProcessGroup& group) {
    std::vector<std::shared_ptr<Storage>> shared;
    for (ptrdiff_t& count : open_files) {
      for (int i = 0; i < 10; ++i) shared.push_back(group.allocate_shared(4096));
      group.barrier().wait();
      if (group.rank() == 0)
        count = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
      group.barrier().wait();
    }
  });
  REQUIRE(open_files[0] == open_files[1]);
}

TEST_CASE("ranks may sum what lies in different shared memory, which others have released",
          "[process_group][quick][threads]") {
  const bool in_slices = GENERATE(false, true);
  run_groups(3, "shm", {}, [&](ProcessGroup& group) {
    const int rank = group.rank();
    std::vector<Tensor> kept;
    for (int i = 0; i < 3; ++i) kept.push_back(shared_copy(group, numbers(rank, 1000)));
    for (int i = 0; i < 3; ++i)
      if (i != rank) kept[i] = {};
    group.barrier().wait();
    const Tensor& x = kept[rank];
    if (in_slices) {
      group.reduce_slices(x).wait();
      group.gather_slices(x).wait();
    } else {
      group.all_reduce(x).wait();
    }
    must(is_sum(x, 3), "the sum");
  });
}

TEST_CASE("a rank may leave as soon as memory is shared", "[process_group][quick][threads]") {
  for (int round = 0; round < 50; ++round)
    run_groups(4, "shm", {}, [](ProcessGroup& group) { group.allocate_shared(4000); });
}

TEST_CASE("what was computed from leaves that want a gradient is no place to write to",
          "[process_group][quick][threads]") {
  run_groups(2, "shm", {}, [](ProcessGroup& group) {
    const Tensor w = ones({2}).set_requires_grad();
    std::string error;
    try {
      group.all_reduce(mul(w, 2));
    } catch (const Error& e) {
      error = e.what();
    }
    must(error.starts_with("all_reduce: the destination of shape [2]"), error.c_str());
    group.broadcast(w, 0).wait();  // a leaf is
  });
}

TEST_CASE("all_reduce of a million elements in pieces", "[process_group]") {
  const int size = GENERATE(2, 3, 7);
  run_groups(size, "shm", {}, [&](ProcessGroup& group) {
    for (int round = 0; round < 3; ++round) {
      const Tensor x = numbers(group.rank(), 1'000'000);
      const Tensor y = shared_copy(group, numbers(group.rank(), 1'000'000));
      group.all_reduce(x).wait();
      group.all_reduce(y).wait();
      must(is_sum(x, size) && is_sum(y, size), "all_reduce");
    }
  });
}

TEST_CASE("consecutive staged all_reduces do not tread on each other",
          "[process_group][quick][threads]") {
  const int size = GENERATE(2, 3);
  run_groups(size, "shm", {}, [&](ProcessGroup& group) {
    for (int round = 0; round < 300; ++round) {
      const Tensor x = full({257}, round + group.rank());
      group.all_reduce(x).wait();
      for (int64_t i = 0; i < 257; ++i)
        must(at(x, i) == size * round + size * (size - 1) / 2, "sum");
    }
  });
}

TEST_CASE("averages have the same bits on all ranks", "[process_group][quick][threads]") {
  const int size = GENERATE(2, 3, 7);
  for (const bool shared : {false, true}) {
    std::vector<std::vector<float>> results(static_cast<size_t>(size));
    run_groups(size, "shm", {}, [&](ProcessGroup& group) {
      Tensor x = empty({10'000});
      for (int64_t i = 0; i < x.numel(); ++i)
        x.data<float>()[i] = 0.1f * static_cast<float>(i % 37 + group.rank());
      if (shared) x = shared_copy(group, x);
      group.all_reduce(x, ReduceOp::Average).wait();
      results[static_cast<size_t>(group.rank())] = to_vector<float>(x);
    });
    for (const auto& result : results)
      REQUIRE(std::memcmp(result.data(), results[0].data(), 40'000) == 0);
    double want = 0;
    for (int r = 0; r < size; ++r) want += 0.1 * (5 + r) / size;
    REQUIRE(std::abs(results[0][5] - want) < 1e-6);
  }
}

TEST_CASE("the other collectives on tensors", "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(1, 2, 3, 7);
  run_groups(size, channel, {}, [&](ProcessGroup& group) {
    const int rank = group.rank();
    const int last = size - 1;
    const int64_t n = 6;
    Tensor x = full({2, 3}, rank);
    group.broadcast(x, last).wait();
    must(at(x, 5) == last, "broadcast");

    x = numbers(rank, n);
    group.reduce(x, last).wait();
    must(rank == last ? is_sum(x, size) : at(x, 1) == at(numbers(rank, n), 1), "reduce");

    x = full({n}, rank);
    const Tensor all = full({size, n}, -1);
    group.gather(all, x, last).wait();
    for (int r = 0; r < size; ++r) must(at(all, r * n) == (rank == last ? r : -1), "gather");
    fill_(x, -2);
    group.scatter(x, all, last).wait();
    must(at(x, n - 1) == rank, "scatter");

    fill_(all, -1);
    group.all_gather(all, x).wait();
    for (int r = 0; r < size; ++r) must(at(all, r * n + n - 1) == r, "all_gather");

    const Tensor whole = numbers(rank, size * n);
    const Tensor part = empty({n});
    group.reduce_scatter(part, whole).wait();
    for (int64_t i = 0; i < n; ++i)
      must(at(part, i) == sum_over_ranks(size, rank * n + i), "reduce_scatter");

    if (size > 1) {  // once around
      Tensor token = full({1}, 0);
      if (rank > 0) group.recv(token, rank - 1).wait();
      fill_(token, at(token, 0) + 1);
      group.send(token, (rank + 1) % size).wait();
      if (rank == 0) group.recv(token, last).wait();
      if (rank == 0) must(at(token, 0) == size, "send and recv");
    }
    group.barrier().wait();
  });
}

TEST_CASE("asynchronous collectives are done in the order of issue",
          "[process_group][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(2, 3);
  run_groups(size, channel, {}, [&](ProcessGroup& group) {
    std::vector<Tensor> x;
    std::vector<Work> work;
    for (int i = 0; i < 20; ++i) {
      x.push_back(numbers(group.rank(), 100 * i));
      work.push_back(
          group.all_reduce(x.back(), ReduceOp::Sum, {.async = true, .step = 1, .bucket = i}));
    }
    const Tensor now = numbers(group.rank(), 10);
    group.all_reduce(now).wait();  // a blocking one waits for its turn
    must(is_sum(now, size), "blocking");
    for (const Work& w : work) must(w.done(), "a later collective was done before an earlier one");
    for (const Tensor& t : x) must(is_sum(t, size), "asynchronous");
    must(work[0].ended() <= work[1].ended(), "times");
  });
}

TEST_CASE("the caller's mistakes are refused before anybody hears of them",
          "[process_group][quick][threads]") {
  run_groups(2, "shm", {}, [&](ProcessGroup& group) {
    const auto refuses = [](auto call) {
      try {
        call();
      } catch (const DistributedError&) {
        throw Error("the group was told");
      } catch (const Error&) {
        return;
      }
      throw Error("accepted");
    };
    const Tensor x = full({4}, 1);
    refuses([&] { group.all_reduce(Tensor()); });
    refuses([&] { group.all_reduce(full({4}, 1, {.dtype = DType::UInt8}), ReduceOp::Average); });
    refuses([&] { group.all_reduce(x, ReduceOp::BitXor); });
    refuses([&] { group.all_reduce(x.as_strided({2}, {0}, 0)); });  // two elements in one place
    refuses([&] { group.broadcast(x, 2); });
    refuses([&] { group.send(x, group.rank()); });
    refuses([&] { group.all_gather(full({7}, 0), x); });
    refuses([&] { group.all_gather(full({8}, 0, {.dtype = DType::Float64}), x); });
    refuses([&] { group.reduce_scatter(x, x); });
    group.all_reduce(x).wait();
    must(at(x, 0) == 2, "the group is alive");
  });
}

TEST_CASE("what a collective writes counts as modified", "[process_group][quick][threads]") {
  run_groups(1, "shm", {}, [&](ProcessGroup& group) {
    const Tensor x = full({2}, 1);
    const Tensor y = full({2}, 1);
    const auto before_x = x.storage()->version();
    const auto before_y = y.storage()->version();
    group.all_gather(y, x).wait();
    must(x.storage()->version() == before_x && y.storage()->version() > before_y, "version");
  });
}

}  // namespace ringgrad::test::process_group_test
