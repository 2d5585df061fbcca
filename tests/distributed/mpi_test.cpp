// The process group over MPI, on as many ranks as mpirun has started: ctest runs it on four of
// them, and on one.
#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"

namespace ringgrad::test::mpi_test {

namespace {

constexpr int64_t kCount = 1000;

// Small integers: every dtype adds them exactly.
Tensor numbers(DType dtype, int rank, int64_t count = kCount) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>((i + rank) % 7 - 3));
  const Tensor x = zeros({count}, {.dtype = dtype});
  copy_(x, tensor(values, x.shape()));
  return x;
}

std::vector<double> values_of(const Tensor& x) {
  const Tensor wide = zeros(x.shape(), {.dtype = DType::Float64});
  copy_(wide, x);
  return to_vector<double>(wide);
}

void test_collectives(ProcessGroup& group, DType dtype) {
  const int rank = group.rank();
  const int size = group.size();
  const auto expected = [&](int64_t i, ReduceOp op) {
    double result = static_cast<double>(i % 7 - 3);
    for (int r = 1; r < size; ++r) {
      const auto next = static_cast<double>((i + r) % 7 - 3);
      result = op == ReduceOp::Min   ? std::min(result, next)
               : op == ReduceOp::Max ? std::max(result, next)
                                     : result + next;
    }
    return op == ReduceOp::Average
               ? (dtype == DType::Int64 ? std::trunc(result / size) : result / size)
               : result;
  };
  for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max}) {
    CAPTURE(dtype, name(op));
    const Tensor x = numbers(dtype, rank);
    const Tensor to_root = numbers(dtype, rank);
    const Work work = group.all_reduce(x, op, {.async = true, .step = 1, .bucket = 2});
    group.reduce(to_root, size - 1, op).wait();
    work.wait();
    REQUIRE(work.done());
    const auto sums = values_of(x);
    const auto root_sums = values_of(to_root);
    for (size_t i = 0; i < sums.size(); ++i) {
      const double want = expected(static_cast<int64_t>(i), op);
      // An average of 16-bit numbers is rounded.
      REQUIRE(std::abs(sums[i] - want) <= std::abs(want) / 100);
      if (rank == size - 1) REQUIRE(root_sums[i] == sums[i]);
    }
    const Tensor halves = numbers(dtype, rank);
    group.reduce_slices(halves, op).wait();
    group.gather_slices(halves).wait();
    REQUIRE(values_of(halves) == sums);
    const Tensor part = zeros({kCount}, {.dtype = dtype});
    group.reduce_scatter(part, numbers(dtype, rank, kCount * size), op).wait();
    const auto parts = values_of(part);
    for (size_t i = 0; i < parts.size(); ++i) {
      const double want = expected(static_cast<int64_t>(i) + kCount * rank, op);
      REQUIRE(std::abs(parts[i] - want) <= std::abs(want) / 100);
    }
  }
  const Tensor mine = numbers(dtype, rank);
  const Tensor all = zeros({kCount * size}, {.dtype = dtype});
  const Tensor gathered = zeros({kCount * size}, {.dtype = dtype});
  const Tensor back = zeros({kCount}, {.dtype = dtype});
  group.all_gather(all, mine).wait();
  group.gather(gathered, mine, 0).wait();
  group.scatter(back, all, size - 1).wait();
  REQUIRE(values_of(back) == values_of(mine));
  if (rank == 0) REQUIRE(values_of(gathered) == values_of(all));
  const Tensor root = numbers(dtype, rank);
  group.broadcast(root, size - 1).wait();
  REQUIRE(values_of(root) == values_of(numbers(dtype, size - 1)));
  if (size > 1) {
    const Tensor from_left = zeros({kCount}, {.dtype = dtype});
    const Work sent = group.send(mine, (rank + 1) % size, {.async = true});
    group.recv(from_left, (rank + size - 1) % size).wait();
    sent.wait();
    REQUIRE(values_of(from_left) == values_of(numbers(dtype, (rank + size - 1) % size)));
  }
  group.barrier().wait();
}

// Returns the parameters after a few steps of a small network.
std::vector<double> train(ProcessGroup& group) {
  const auto net = make_net<SmallCnn>(3, DType::Float64);
  DistributedDataParallel ddp(*net, group);
  optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const auto [x, target] = samples({1, 8, 8}, 10, DType::Float64, step * 16, step * 16 + 16,
                                     group.rank(), group.size());
    cross_entropy(ddp(x), target).backward();
    optimizer.step();
  }
  (void)ddp.check_identical();
  return flat_values(*net);
}

}  // namespace

TEST_CASE("collectives and training over MPI", "[mpi][quick]") {
  std::shared_ptr<ProcessGroup> group;
  try {
    group = init_process_group({.backend = "mpi"});
  } catch (const NotImplementedError& error) {
    REQUIRE(std::string(error.what()).find("install an MPI library") != std::string::npos);
    return;
  }
  REQUIRE(group->backend() == "mpi");
  for (const DType dtype :
       {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64})
    test_collectives(*group, dtype);
  REQUIRE_THROWS_AS(group->all_reduce(zeros({3}, {.dtype = DType::UInt8}), ReduceOp::Average),
                    DTypeError);

  auto pair = group->split(group->rank() / 2);  // a job of one rank has one pair of one
  REQUIRE(pair->rank() == group->rank() % 2);
  test_collectives(*pair, DType::Float32);
  pair.reset();

  // The ring trains the same network, among the same processes.
  const auto over_mpi = train(*group);
  group.reset();
  destroy_process_group();
  auto ring = init_process_group({.backend = "ring"});
  REQUIRE(relative_difference(over_mpi, train(*ring)) < 1e-12);
  ring.reset();
  destroy_process_group();
}

}  // namespace ringgrad::test::mpi_test
