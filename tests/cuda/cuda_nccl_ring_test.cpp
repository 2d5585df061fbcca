// Our ring over ncclSend and ncclRecv against ncclAllReduce, plain loops in double, and the ring on
// the CPU.
#include <cmath>

#include "ringgrad/core/random.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/nccl_ranks.h"

namespace ringgrad::test::cuda_nccl_ring_test {

namespace {

constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max};

double random_value(int rank, int64_t i) {
  return uniform_from(
      philox(11, static_cast<uint64_t>(i) * 8 + static_cast<uint64_t>(rank)).word[0]);
}

// Values of which a few can be added exactly in every dtype: eighths in [-4, 4), for integers 0
// … 15.
std::vector<double> exact_values(int rank, int64_t n, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(is_floating(dtype) ? std::floor(random_value(rank, i) * 64) / 8 - 4
                                        : std::floor(random_value(rank, i) * 16));
  return values;
}

double reduced(ReduceOp op, int size, int64_t i, DType dtype) {
  double sum = 0;
  double least = INFINITY;
  double most = -INFINITY;
  for (int r = 0; r < size; ++r) {
    const double value = exact_values(r, i + 1, dtype).back();
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (op == ReduceOp::Min) return least;
  if (op == ReduceOp::Max) return most;
  if (op == ReduceOp::Sum) return sum;
  return is_floating(dtype) ? sum / size : std::trunc(sum / size);
}

// Returns the tolerance of a result that is rounded twice: 1 / size, and the product.
double tolerance(DType dtype) {
  switch (dtype) {
    case DType::BFloat16: return 0x1p-7;
    case DType::Float16: return 0x1p-10;
    case DType::Float32: return 0x1p-22;
    case DType::Float64: return 0x1p-51;
    default: return 0;
  }
}

Tensor host_copy(const Tensor& x) {
  const Tensor y = empty(x.shape(), {.dtype = x.dtype()});
  copy_(y, x);
  return y;
}
std::string bytes_of(const Tensor& x) {
  const Tensor y = host_copy(x);
  return {static_cast<const char*>(y.raw_data()), y.nbytes()};
}

void check_against_references(ProcessGroup& ring, ProcessGroup& library, DType dtype, int64_t n) {
  for (const ReduceOp op : kOps) {
    const bool is_small_integer = dtype == DType::Int32 || dtype == DType::UInt8;
    if (op == ReduceOp::Average && is_small_integer) continue;  // refused: their sums may wrap
    const std::vector<double> own = exact_values(ring.rank(), n, dtype);
    const Tensor x = on(ring, own, dtype);
    const Tensor y = on(ring, own, dtype);
    ring.all_reduce(x, op, {.async = true}).wait();
    library.all_reduce(y, op);
    const auto got = to_vector<double>(x);
    const auto theirs = to_vector<double>(y);
    for (int64_t i = 0; i < n; ++i) {
      const double expected = reduced(op, ring.size(), i, dtype);
      const double mine = got[static_cast<size_t>(i)];
      const double allowed = op == ReduceOp::Average ? tolerance(dtype) * std::abs(expected) : 0;
      const std::string where = str(name(op), " of ", n, " ", dtype, ", element ", i, ": ", mine);
      must(std::abs(mine - expected) <= allowed, str(where, ", expected ", expected));
      // NCCL may divide the terms, which are up to 4, and rounds each of its partial sums.
      must(std::abs(mine - theirs[static_cast<size_t>(i)]) <=
               (allowed > 0 ? 4 * ring.size() * tolerance(dtype) : 0),
           str(where, ", ncclAllReduce gives ", theirs[static_cast<size_t>(i)]));
    }
  }
}

}  // namespace

TEST_CASE("nccl-ring: what ncclAllReduce and plain loops give", "[quick][cuda][threads]") {
  const int size = GENERATE(1, 2, 3, 4);
  if (!enough_devices(size)) return;
  const StreamOrderGuard order(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const size_t segment_bytes = GENERATE(size_t{24}, size_t{4} << 20);
  run_nccl(size, {.all_reduce = NcclAllReduce::Ring, .segment_bytes = segment_bytes},
           [](ProcessGroup& ring) {
             const std::shared_ptr<ProcessGroup> host(&ring, [](ProcessGroup*) {});
             NcclProcessGroup library(host, device_of(ring));
             for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16,
                                       DType::Float16, DType::Int64, DType::Int32, DType::UInt8})
               for (const int64_t n : {0, 1, 5, 67})
                 check_against_references(ring, library, dtype, n);
           });
}

TEST_CASE("nccl-ring: every rank has the bits that the ring on the CPU gives",
          "[quick][cuda][threads]") {
  const int size = GENERATE(2, 3, 4);
  if (!enough_devices(size)) return;
  const DType dtype =
      GENERATE(DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64);
  const size_t segment_bytes = GENERATE(size_t{100}, size_t{1000});
  std::vector<std::string> results(static_cast<size_t>(size));
  run_nccl(size, {.all_reduce = NcclAllReduce::Ring, .segment_bytes = segment_bytes},
           [&](ProcessGroup& group) {
             for (const ReduceOp op : kOps) {
               std::vector<double> values;
               for (int64_t i = 0; i < 1001; ++i)
                 values.push_back(1000 * random_value(group.rank(), i) - 300);
               if (is_floating(dtype)) values[100 * static_cast<size_t>(group.rank())] = NAN;
               const Tensor x = on(group, values, dtype);
               const Tensor y = host_copy(x);
               group.all_reduce(x, op);
               group.all_reduce(y, op);
               const auto mine = to_vector<double>(x);
               const auto theirs = to_vector<double>(y);
               for (size_t i = 0; i < mine.size(); ++i)
                 must(mine[i] == theirs[i] || (std::isnan(mine[i]) && std::isnan(theirs[i])),
                      str(name(op), ", element ", i, ": ", mine[i], ", on the CPU ", theirs[i]));
               if (is_floating(dtype))
                 for (int r = 0; r < group.size(); ++r)
                   must(std::isnan(mine[100 * static_cast<size_t>(r)]), "a NaN is lost");
               results[static_cast<size_t>(group.rank())] += bytes_of(x);
             }
           });
  for (const std::string& result : results) CHECK(result == results[0]);
}

TEST_CASE("nccl-ring: a dense tensor of any strides, and what cannot be added",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const auto errors =
      errors_of_nccl(2, {.all_reduce = NcclAllReduce::Ring}, [](ProcessGroup& group) {
        const Tensor x =
            on(group, {1, 2, 3, 4, 5, 6}, DType::Float32).as_strided({2, 3}, {1, 2}, 0);
        group.all_reduce(x);
        must_be(x, {2, 6, 10, 4, 8, 12}, "the transposed sum");
        const Tensor offset = on(group, {1, 2, 3, 4, 5}, DType::Float16);
        const Tensor tail = offset.as_strided({4}, {1}, 1);
        group.all_reduce(tail);
        must_be(offset, {1, 4, 6, 8, 10}, "the sum of a part");
        group.all_reduce(ones({2}, {DType::Int32, device_of(group)}), ReduceOp::BitAnd);
      });
  for (const std::string& error : errors) CHECK(error.find("all_reduce") == 0);
}

}  // namespace ringgrad::test::cuda_nccl_ring_test
