// The NCCL process group, a thread and a device for each rank: collectives, also captured, and
// memory.
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/nccl_ranks.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::cuda_nccl_test {

TEST_CASE("nccl: collectives of every dtype", "[quick][cuda][threads]") {
  if (!enough_devices(3)) return;
  const StreamOrderGuard order(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const DType dtype = GENERATE(DType::Float32, DType::Float64, DType::BFloat16, DType::Float16,
                               DType::Int64, DType::UInt8);
  const NcclOptions options{.all_reduce = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring)};
  run_nccl(3, options, [&](ProcessGroup& group) {
    const double r = group.rank();
    const Tensor x = on(group, {r, 10, 3 * r}, dtype);
    group.all_reduce(x, ReduceOp::Sum, {.async = true}).wait();
    must_be(x, {3, 30, 9}, "all_reduce");
    if (dtype != DType::UInt8) group.all_reduce(x, ReduceOp::Average);
    must_be(x, {3, 30, 9}, "the average");
    const Tensor largest = on(group, {r, 2 - r}, dtype);
    const Tensor smallest = on(group, {r + 1}, dtype);
    group.all_reduce(largest, ReduceOp::Max);
    group.all_reduce(smallest, ReduceOp::Min);
    must_be(largest, {2, 2}, "the maximum");
    must_be(smallest, {1}, "the minimum");
    const Tensor from_one = on(group, {r, r + 5}, dtype);
    group.broadcast(from_one, 1);
    must_be(from_one, {1, 6}, "broadcast");
    const Tensor to_two = on(group, {r + 1}, dtype);
    group.reduce(to_two, 2);
    must_be(to_two, {r == 2 ? 6 : r + 1}, "reduce");
    const Tensor all = on(group, std::vector<double>(6), dtype);
    const Tensor own = on(group, {r, 7}, dtype);
    group.all_gather(all, own);
    must_be(all, {0, 7, 1, 7, 2, 7}, "all_gather");
    const Tensor part = on(group, {0}, dtype);
    group.reduce_scatter(part, on(group, {1, 2, 3 + r}, dtype));
    must_be(part, {r == 2 ? 12 : 3 * (r + 1)}, "reduce_scatter");
    for (const auto& values : {std::vector<double>{r, 10, 3 * r}, std::vector<double>{r, r + 2}}) {
      const Tensor sum = on(group, values, dtype);
      const Tensor halves = on(group, values, dtype);
      group.all_reduce(sum);
      group.reduce_slices(halves);
      group.gather_slices(halves);
      must_be(halves, to_vector<double>(sum), "the two halves");
    }
    const Tensor gathered = on(group, {0, 0, 0}, dtype);
    group.gather(gathered, on(group, {r + 4}, dtype), 1);
    if (r == 1) must_be(gathered, {4, 5, 6}, "gather");
    group.scatter(part, on(group, {8, 9, 10}, dtype), 0);
    must_be(part, {8 + r}, "scatter");
    if (r == 0) group.send(on(group, {42}, dtype), 2);
    if (r == 2) {
      group.recv(part, 0);
      must_be(part, {42}, "recv");
    }
    group.barrier();
    const auto pair = group.split(group.rank() == 1 ? -1 : 0);
    must((pair == nullptr) == (group.rank() == 1), "split");
    if (!pair) return;
    const Tensor two = on(group, {r}, dtype);
    pair->all_reduce(two);
    must_be(two, {2}, "all_reduce of two");
  });
}

TEST_CASE("nccl: a collective that is captured runs at each launch, and outside of it",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const NcclOptions options{.all_reduce = GENERATE(NcclAllReduce::Library, NcclAllReduce::Ring)};
  run_nccl(2, options, [](ProcessGroup& group) {
    const Tensor x = on(group, {group.rank() + 1.0}, DType::Float32);
    const cuda::Graph graph = cuda::capture(device_of(group), [&] { group.all_reduce(x); });
    must_be(x, {group.rank() + 1.0}, "recording the all_reduce");
    for (const double sum : {3.0, 6.0}) {
      graph.launch(current_stream(device_of(group)));
      must_be(x, {sum}, "the replay");
    }
    group.all_reduce(x);
    must_be(x, {12}, "all_reduce");
  });
}

TEST_CASE("nccl: memory of a collective that nobody waits for is used again only after it",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const StreamOrderGuard order(GENERATE(StreamOrder::Lazy, StreamOrder::Random));
  run_nccl(2, {}, [](ProcessGroup& group) {
    group.all_reduce(on(group, {1, 2}, DType::Float32), ReduceOp::Sum, {.async = true});
    const Tensor next = full({2}, 7, {.device = device_of(group)});
    const Tensor other = on(group, {1}, DType::Float32);
    group.all_reduce(other);
    must_be(next, {7, 7}, "the memory's next use");
  });
}

TEST_CASE("nccl: a barrier waits for what the devices have been given", "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const StreamOrderGuard order(StreamOrder::Lazy);
  run_nccl(2, {}, [](ProcessGroup& group) {
    const Tensor x = ones({2}, {.device = device_of(group)});
    cuda::Event filled(device_of(group));
    filled.record(current_stream(device_of(group)));
    group.barrier();
    must(filled.done(), "the device is not done after the barrier");
  });
}

TEST_CASE("nccl: init_process_group makes the group of this rank's device",
          "[quick][cuda][threads]") {
  if (!enough_devices(3)) return;
  const std::string backend = GENERATE("nccl", "nccl-ring");
  RankEnvironment alone;
  alone.local_rank = device_count(DeviceType::CUDA) + 1;  // the second time round
  const Device wanted = GENERATE(Device("cuda:1"), Device("cuda:2"));
  InitOptions options;
  options.backend = backend;
  if (wanted.index == 2) options.device = wanted;
  init_process_group(alone, options);
  ProcessGroup& group = process_group();
  CHECK(group.device() == wanted);
  CHECK(group.reaches(wanted));
  CHECK(group.reaches(Device()));
  CHECK(!group.reaches(Device("cuda:0")));
  CHECK(group.backend() == backend + ", and ring");
  for (const Device device : {wanted, Device()}) {
    const Tensor x = full({3}, 2, {.device = device});
    group.all_reduce(x, ReduceOp::Average);
    CHECK(to_vector<double>(x) == std::vector<double>{2, 2, 2});
  }
  destroy_process_group();
  options.device = Device("cuda:63");
  CHECK_THROWS_AS(init_process_group(alone, options), DeviceError);
  CHECK(!is_process_group_initialized());
}

TEST_CASE("nccl: what the hosts' group refuses is refused", "[quick][cuda][threads]") {
  if (!enough_devices(1)) return;
  run_nccl(1, {}, [](ProcessGroup& group) {
    for (const DType dtype : {DType::Int32, DType::UInt8, DType::Bool})
      must_be_refused(group, "all_reduce (average)", [&] {
        group.all_reduce(on(group, {1, 0}, dtype), ReduceOp::Average);
      });
    must_be_refused(group, "all_gather: tensors on cuda:0 and cpu:0, expected the same",
                    [&] { group.all_gather(on(group, {0}, DType::Float32), ones({1})); });
  });
}

TEST_CASE("nccl: tensors elsewhere are refused", "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const auto errors = errors_of_nccl(1, {}, [](ProcessGroup& group) {
    group.all_reduce(ones({2}));  // on the CPU: by the host's group
    group.all_reduce(ones({2}, {.device = Device("cuda:1")}));
  });
  REQUIRE(errors[0] ==
          "all_reduce: a tensor lies on cuda:1, expected cuda:0, the rank's device, or the CPU");
}

}  // namespace ringgrad::test::cuda_nccl_test
