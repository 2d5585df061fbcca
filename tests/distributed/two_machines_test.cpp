// Ranks of several machines with several ranks each: sums in shared memory within a machine, a ring
// between machines.
#include <cstring>
#include <random>

#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::test::two_machines_test {

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Groups of ranks of which those with the same number share memory; the others are connected by
// TCP, and what they send is counted.
struct Cluster {
  explicit Cluster(const std::vector<int>& machines, HostOptions options = {}) {
    const int size = static_cast<int>(machines.size());
    std::vector<std::vector<Link>> links(machines.size());
    for (auto& row : links) row.resize(machines.size());
    for (int i = 0; i < size; ++i)
      for (int j = 0; j < i; ++j) {
        connect_pair(links[i][j], links[j][i], machines[i] == machines[j] ? "shm" : "tcp");
        if (machines[i] == machines[j]) continue;
        for (const Link* link : {&links[i][j], &links[j][i]})
          cables.emplace_back(dup(link->data->descriptor()));
      }
    const auto deadline = Deadline::after(std::chrono::seconds(30));
    std::vector<std::unique_ptr<Transport>> transports;
    for (int r = 0; r < size; ++r)
      transports.push_back(std::make_unique<Transport>(r, std::move(links[r]), size, deadline));
    options.machines = machines;
    options.timeout = std::chrono::seconds(30);
    for (auto& transport : transports) transport->complete(deadline);
    for (auto& transport : transports)
      groups.push_back(std::make_unique<HostProcessGroup>(std::move(transport), options));
  }

  uint64_t bytes_sent() const {
    uint64_t bytes = 0;
    for (const FileDescriptor& cable : cables) {
      char info[256] = {};  // Linux's struct tcp_info, of which glibc knows the first half only
      socklen_t size = sizeof info;
      getsockopt(cable.get(), IPPROTO_TCP, TCP_INFO, info, &size);
      uint64_t acknowledged;
      std::memcpy(&acknowledged, info + 120, sizeof acknowledged);
      bytes += acknowledged;
    }
    return bytes;
  }

  std::vector<FileDescriptor> cables;
  std::vector<std::unique_ptr<HostProcessGroup>> groups;
};

template <class T>
Tensor noise(int rank, int64_t n) {
  std::mt19937 random(static_cast<unsigned>(rank));
  const Tensor x = empty({n}, {.dtype = dtype_of<T>});
  for (int64_t i = 0; i < n; ++i)
    x.data<T>()[i] = static_cast<T>(static_cast<float>(random() % 2001) / 1000 - 1);
  return x;
}

// All ranks hold the same bits, and they are the sum's or average's up to rounding.
template <class T>
void check(ProcessGroup& group, int64_t n, ReduceOp op, bool shared) {
  Tensor x = noise<T>(group.rank(), n);
  if (shared) {
    const Tensor y(group.allocate_shared(static_cast<size_t>(n) * sizeof(T)), x.shape(),
                   x.strides(), 0, x.dtype());
    copy_(y, x);
    x = y;
  }
  group.all_reduce(x, op).wait();
  std::vector<double> want(static_cast<size_t>(n));
  for (int r = 0; r < group.size(); ++r) {
    const auto theirs = to_vector<double>(noise<T>(r, n));
    for (size_t i = 0; i < want.size(); ++i)
      want[i] += theirs[i] / (op == ReduceOp::Average ? group.size() : 1);
  }
  const auto got = to_vector<double>(x);
  const double tolerance = sizeof(T) == 2 ? 0.02 : 1e-5;
  for (size_t i = 0; i < want.size(); ++i)
    if (std::abs(got[i] - want[i]) > tolerance * (1 + std::abs(want[i])))
      throw Error(str("wrong at ", i));
  const Tensor all = empty({group.size(), n}, {.dtype = dtype_of<T>});
  group.all_gather(all, x).wait();
  const auto* bits = static_cast<const char*>(all.raw_data());
  const size_t bytes = static_cast<size_t>(n) * sizeof(T);
  for (int r = 1; r < group.size(); ++r)
    if (std::memcmp(bits, bits + static_cast<size_t>(r) * bytes, bytes) != 0)
      throw Error("ranks differ");
}

}  // namespace

TEST_CASE("all_reduce within machines and between them", "[two_machines][quick][threads]") {
  const auto machines = GENERATE(std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1},
                                 std::vector{0, 0, 1, 1, 2, 2}, std::vector{0, 0, 0, 1});
  Cluster cluster(machines);
  const bool even = machines.size() != 4 || machines[2] != 0 || machines[1] == 1;
  REQUIRE(contains(cluster.groups[0]->backend(),
                   even ? "shared memory, and ring over tcp" : "ring over"));
  for (const auto& error : errors_of_ranks(std::move(cluster.groups), [](ProcessGroup& group) {
         for (const int64_t n : {0, 5, 20'000, 150'000}) {
           check<float>(group, n, ReduceOp::Sum, n == 20'000);
           check<bfloat16>(group, n, ReduceOp::Average, n == 150'000);
         }
         // Plain memory on some ranks, and on some machines only.
         check<float>(group, 300'000, ReduceOp::Average, false);
         const Tensor plain = ones({300'000});
         const Tensor shared(group.allocate_shared(1'200'000), plain.shape(), plain.strides(), 0,
                             plain.dtype());
         copy_(shared, plain);
         const Tensor& x = group.rank() == 0 ? plain : shared;
         group.all_reduce(x).wait();
         if (to_vector<float>(x) != std::vector<float>(300'000, static_cast<float>(group.size())))
           throw Error("mixed");
       }))
    REQUIRE(error == "");
}

// A ring of all n ranks sends 2 (n-1)/n times the buffer over each cable. With two levels the
// owners of a part on m machines send 2 (m-1)/m times that part between them.
TEST_CASE("two levels send less between machines", "[two_machines][quick][threads]") {
  const auto machines = GENERATE(std::vector{0, 0, 1, 1}, std::vector{0, 1, 0, 1});
  const int64_t count = 500'000;
  uint64_t sent[2];
  for (const bool two_levels : {false, true}) {
    HostOptions options;
    options.algorithm = two_levels ? AllReduceAlgorithm::Auto : AllReduceAlgorithm::SegmentedRing;
    Cluster cluster(machines, options);
    for (const auto& error : errors_of_ranks(std::move(cluster.groups), [&](ProcessGroup& group) {
           const Tensor x = ones({count});
           group.all_reduce(x).wait();
           group.barrier().wait();
         }))
      REQUIRE(error == "");
    sent[two_levels] = cluster.bytes_sent();
  }
  const double buffers = static_cast<double>(sent[1]) / (4 * count);
  const double ring = static_cast<double>(sent[0]) / (4 * count);
  CAPTURE(buffers, ring);
  REQUIRE(std::abs(buffers - 2) < 0.05);
  REQUIRE(std::abs(ring - (machines[1] == 0 ? 3 : 6)) < 0.05);
}

TEST_CASE("two levels find out ranks that disagree, or leave", "[two_machines][quick][threads]") {
  const int kind = GENERATE(0, 1, 2);
  Cluster cluster({0, 0, 1, 1});
  const auto errors = errors_of_ranks(std::move(cluster.groups), [&](ProcessGroup& group) {
    if (group.rank() == 2 && kind == 2) group.abort("no more");
    const int64_t rows = group.rank() == 2 && kind == 0 ? 300 : 400;
    const Tensor x = ones({rows, 120'000 / rows});
    group.all_reduce(x, ReduceOp::Sum, {.step = group.rank() >= 2 && kind == 1 ? 8 : 7}).wait();
    group.barrier().wait();
  });
  for (const auto& error : errors) {
    CAPTURE(kind, error);
    REQUIRE(contains(error, kind < 2 ? "out of step" : "no more"));
  }
}

}  // namespace ringgrad::test::two_machines_test
