// Recorded collectives in the emulator's graphs: which nodes there are and what they wait for; and
// NCCL's own rules of captures and communicators, which the emulator keeps.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "ringgrad/cuda_kernels/emulator/include/nccl.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/nccl_ranks.h"

namespace ringgrad::test::emulator_nccl_test {

namespace {

struct Recorded {
  std::vector<std::vector<int>> after;
  std::vector<int> all_reduces;
};

// The shape of the graph that this thread has captured last. (Keeping the nodes themselves would
// keep NCCL's communicator from ending.)
Recorded shape_of_graph() {
  Recorded shape;
  const auto nodes = emulator::newest_graph.lock();
  must(nodes != nullptr, "a graph lives");
  for (const emulator::Node& node : *nodes) {
    if (std::string(node.name) == "ncclAllReduce")
      shape.all_reduces.push_back(static_cast<int>(shape.after.size()));
    shape.after.push_back(node.after);
  }
  return shape;
}

// The nodes that must have run before node n.
std::set<int> before(const Recorded& shape, int n) {
  std::set<int> found;
  std::vector<int> open{n};
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    for (const int earlier : shape.after[static_cast<size_t>(node)])
      if (found.insert(earlier).second) open.push_back(earlier);
  }
  return found;
}

// A communicator of this rank, on the current device.
ncclComm_t make_communicator(HostProcessGroup& host,
                             ncclConfig_t config = NCCL_CONFIG_INITIALIZER) {
  ncclUniqueId id{};
  if (host.rank() == 0) ncclGetUniqueId(&id);
  const Tensor bytes = empty({static_cast<int64_t>(sizeof id)}, {.dtype = DType::UInt8});
  std::memcpy(bytes.raw_data(), &id, sizeof id);
  host.broadcast(bytes, 0).wait();
  std::memcpy(&id, bytes.raw_data(), sizeof id);
  ncclComm_t comm;
  ncclCommInitRankConfig(&comm, host.size(), id, host.rank(), &config);
  return comm;
}

ncclResult_t sum_up(const Tensor& x, ncclComm_t comm, Stream stream) {
  return ncclAllReduce(x.raw_data(), x.raw_data(), static_cast<size_t>(x.numel()), ncclFloat32,
                       ncclSum, comm, cuda::native(stream));
}

}  // namespace

TEST_CASE(
    "nccl: buckets are all-reduced beside the rest of a recorded backward, "
    "and before the optimizer",
    "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  run_nccl(2, {}, [](ProcessGroup& group) {
    const auto net = make_net<Mlp>(3, DType::Float32);
    net->to(group.device());
    DistributedDataParallel ddp(*net, group, {.caps = {300, 300}});
    optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
    const auto [x_, target_] = samples({6}, 3, DType::Float32, 0, 8, group.rank(), group.size());
    const Tensor x = to(x_, group.device());
    const Tensor target = to(target_, group.device());
    const auto step = [&] {
      optimizer.zero_grad();
      cross_entropy(ddp(x), target).backward();
      optimizer.step();
    };
    for (int i = 0; i < 2; ++i) step();
    const cuda::Graph graph = cuda::capture(group.device(), step);
    const Recorded shape = shape_of_graph();
    const auto& reduces = shape.all_reduces;
    must(reduces.size() == ddp.log().buckets.size() && reduces.size() >= 3,
         str(reduces.size(), " all-reduces"));

    const int last = static_cast<int>(shape.after.size()) - 1;  // the optimizer's
    const std::set<int> before_last = before(shape, last);
    for (size_t b = 0; b < reduces.size(); ++b) {
      must(before_last.contains(reduces[b]), "the optimizer waits for each bucket");
      int beside = 0;
      for (int node = reduces[b] + 1; node <= last; ++node)
        if (!before(shape, node).contains(reduces[b])) ++beside;
      if (b + 1 < reduces.size())
        must(beside >= 2, str("beside bucket ", b, " run ", beside, " later nodes"));
    }
    for (int i = 0; i < 3; ++i) graph.launch(current_stream(group.device()));
    ddp.check_identical();
  });
}

TEST_CASE("emulator: an operation of NCCL that is captured on one rank only is a disagreement",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const auto errors = errors_of_ranks(host_groups(2, "shm", {}), [](HostProcessGroup& host) {
    const Device device(DeviceType::CUDA, host.rank());
    const cuda::DeviceGuard guard(device);
    const Tensor x = ones({8}, {.device = device});
    const ncclComm_t comm = make_communicator(host);
    const auto all_reduce = [&] {
      const cudaStream_t stream = cuda::native(current_stream(device));
      ncclAllReduce(x.raw_data(), x.raw_data(), 8, ncclFloat32, ncclSum, comm, stream);
    };
    std::optional<cuda::Graph> graph;
    if (host.rank() == 0) {
      graph.emplace(cuda::capture(device, all_reduce));
      graph->launch(current_stream(device));
    } else {
      all_reduce();
    }
    synchronize(current_stream(device));
    ncclResult_t state = ncclSuccess;
    ncclCommGetAsyncError(comm, &state);
    const std::string error = ncclGetLastError(comm);
    must(state == ncclInvalidUsage && contains(error, "ncclAllReduce in a graph of 8 elements"),
         "NCCL says: " + error);

    // The communicator does not end before the graph.
    std::atomic<bool> ended = false;
    std::thread ending([&] {
      ncclCommAbort(comm);
      ended = true;
    });
    if (graph) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      must(!ended, "a graph still has the communicator's operation");
    }
    graph.reset();
    ending.join();
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("emulator: what a capture has recorded cannot be waited for after it", "[quick][cuda]") {
  const Device device("cuda:0");
  cuda::Event event(device);
  const cuda::Graph graph = cuda::capture(device, [&] { event.record(current_stream(device)); });
  REQUIRE(
      contains(failure([&] { event.block(current_stream(device)); }), "cudaErrorCapturedEvent"));
}

TEST_CASE(
    "emulator: asking for an event does not wait for the ranks that are missing in a collective",
    "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const StreamOrderGuard order(GENERATE(StreamOrder::Lazy, StreamOrder::Random));
  const auto errors = errors_of_ranks(host_groups(2, "shm", {}), [](HostProcessGroup& host) {
    const Device device(DeviceType::CUDA, host.rank());
    const cuda::DeviceGuard guard(device);
    const Stream stream = current_stream(device);
    const Tensor x = ones({8}, {.device = device});
    const ncclComm_t comm = make_communicator(host);
    cuda::Event done(device);
    bool answered = true;
    bool done_alone = false;
    if (host.rank() == 0) {
      sum_up(x, comm, stream);
      done.record(stream);
      auto answer = std::async(std::launch::async, [&] {
        bool any = false;
        for (int i = 0; i < 10; ++i) any = any || done.done();
        return any;
      });
      answered = answer.wait_for(std::chrono::seconds(5)) == std::future_status::ready;
      host.barrier().wait();  // only now the other one comes
      done_alone = answer.get();
    } else {
      host.barrier().wait();
      sum_up(x, comm, stream);
      done.record(stream);
    }
    // Asking for it starts it.
    while (!done.done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    must(to_vector<float>(x) == std::vector<float>(8, 2), "the sum");
    host.barrier().wait();
    ncclCommAbort(comm);
    must(answered, "an answer at once");
    must(!done_alone, "that it is not done");
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("emulator: a communicator that does not block goes on in the background",
          "[quick][cuda][threads]") {
  if (!enough_devices(2)) return;
  const auto errors = errors_of_ranks(host_groups(2, "shm", {}), [](HostProcessGroup& host) {
    const Device device(DeviceType::CUDA, host.rank());
    const cuda::DeviceGuard guard(device);
    const Stream stream = current_stream(device);
    const Tensor x = ones({8}, {.device = device});
    const ncclComm_t comm = make_communicator(host, {.blocking = 0});
    const auto state = [comm] {
      ncclResult_t result = ncclSuccess;
      ncclCommGetAsyncError(comm, &result);
      return result;
    };
    while (state() == ncclInProgress) {
    }
    must(sum_up(x, comm, stream) == ncclInProgress, "a call returns before it has been issued");
    must(sum_up(x, comm, stream) == ncclInvalidArgument, "another one meanwhile is refused");
    must(state() == ncclInProgress && state() == ncclSuccess, "and goes on in the background");
    must(sum_up(x, comm, stream) == ncclInProgress, "then the next one is not refused");
    while (state() == ncclInProgress) {
    }
    synchronize(stream);
    must(to_vector<float>(x) == std::vector<float>(8, 4), "two sums");
    const Stream elsewhere = current_stream(Device(DeviceType::CUDA, 1 - host.rank()));
    must(sum_up(x, comm, elsewhere) == ncclInvalidArgument,
         "a stream of another device is refused");
    host.barrier().wait();
    ncclCommAbort(comm);
  });
  for (const std::string& error : errors) CHECK(error == "");
}

}  // namespace ringgrad::test::emulator_nccl_test
