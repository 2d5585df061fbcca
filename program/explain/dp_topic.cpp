// `explain dp`: the copies of DataParallel between devices in one step, counted as they are made,
// beside DDP's.
#include <algorithm>
#include <map>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/cpu_division.h"
#include "ringgrad/core/kernels/device_copies.h"
#include "ringgrad/distributed/data_parallel.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/program/bench/ddp_workload.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/explain/chain.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"

namespace ringgrad::program::dp_topic {
namespace {

constexpr int kLayers = 3;
constexpr int kDevices = 2;
constexpr int64_t kWidth = 256;
constexpr int64_t kSamples = 128;

// One rank of two, with a ring between them, whose messages are counted.
void on_rank(const std::string&) {
  int64_t sent = 0;
  InitOptions options;
  options.transport = "tcp";  // gradients are in this process's own account then
  options.algorithm = AllReduceAlgorithm::Ring;
  options.on_send = [&](int, std::span<const std::byte> payload) {
    sent += static_cast<int64_t>(payload.size());
  };
  play(
      [&](ProcessGroup& group) {
        Chain network(kLayers, kWidth);
        DistributedDataParallel ddp(network, group, {.usual_weight = kSamples / kDevices});
        optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.01, .momentum = 0.9});
        int64_t of_step = 0;
        for (int step = 0; step < 3; ++step) {
          of_step = -sent;
          optimizer.zero_grad();
          loss_on_noise(ddp, kSamples / kDevices, kWidth, group.rank()).backward();
          of_step += sent;
          optimizer.step();
          if (step == 1) reset_peak_memory({});
        }
        return nlohmann::json{{"sent", of_step}, {"peak", memory_stats({}).peak_bytes}};
      },
      options);
}

void tell(Page& page, const ExplainOptions&) {
  // This must come before the first question for the number of devices.
  set_cpu_devices(kDevices);
  const auto make = [] { return std::make_shared<Chain>(kLayers, kWidth); };
  const auto network = make();
  std::vector<Device> devices;
  for (int i = 0; i < kDevices; ++i) devices.emplace_back(DeviceType::CPU, i);
  DataParallel dp(*network, make, devices);
  optim::SGD optimizer(network->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  std::vector<DeviceCopies::Copy> forward;
  std::vector<DeviceCopies::Copy> backward;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const DeviceCopies copies;
    const Tensor loss = loss_on_noise(dp, kSamples, kWidth, 0);
    forward = copies.seen;
    loss.backward();
    backward = {copies.seen.begin() + static_cast<ptrdiff_t>(forward.size()), copies.seen.end()};
    optimizer.step();
    if (step == 1)
      for (const Device device : devices) reset_peak_memory(device);
  }

  page.text(fmt::format(
      "DataParallel is one process with a replica of the network on each of {} devices, here two "
      "halves of the processor with their own memory; {} linear layers of {} × {}, a batch of {}. "
      "In every step the first device scatters the batch, copies all parameters to the others, "
      "gathers their outputs, computes the loss, and collects their gradients; "
      "it alone takes the optimizer's step. These copies were just made:",
      kDevices, kLayers, kWidth, kWidth, kSamples));
  const auto what = [](const DeviceCopies::Copy& copy) -> std::string {
    if (copy.shape == Shape{kSamples / kDevices, kWidth})
      return copy.from == 0 ? "inputs (scatter)" : "outputs (gather)";
    return "parameters (replicate)";
  };
  const auto what_back = [](const DeviceCopies::Copy& copy) -> std::string {
    return copy.shape == Shape{kSamples / kDevices, kWidth} ? "gradients of outputs"
                                                            : "gradients of parameters";
  };
  std::vector<Row> rows;
  nlohmann::json counted = nlohmann::json::object();
  int64_t through_first = 0;
  const auto add = [&](const std::vector<DeviceCopies::Copy>& copies, const char* phase,
                       const auto& name) {
    std::vector<std::string> order;
    std::map<std::string, std::vector<DeviceCopies::Copy>> groups;
    for (const DeviceCopies::Copy& copy : copies) {
      if (!groups.contains(name(copy))) order.push_back(name(copy));
      groups[name(copy)].push_back(copy);
    }
    for (const std::string& kind : order) {
      int64_t bytes = 0;
      for (const DeviceCopies::Copy& copy : groups[kind]) bytes += copy.bytes;
      through_first += bytes;
      counted[kind] = bytes;
      rows.push_back({phase, kind,
                      fmt::format("cpu:{} → cpu:{}", groups[kind][0].from, groups[kind][0].to),
                      std::to_string(groups[kind].size()), with_commas(bytes)});
    }
  };
  add(forward, "forward", what);
  add(backward, "backward", what_back);
  page.table({"", "what", "way", "copies", "bytes"}, rows);

  const auto ddp = answers_of_ranks(page, "ddp", kDevices);
  page.section("Beside DDP");
  page.text(fmt::format(
      "The same network and batch on {} ranks with a ring between them. Bytes out of and into the "
      "busiest device, in a step:",
      kDevices));
  // Each byte that leaves one of two ranks arrives at the other.
  const auto ring = 2 * ddp[0]["sent"].get<int64_t>();
  const double most = static_cast<double>(std::max(through_first, ring));
  page.chart({.name = "bytes out of and into the busiest device in a step",
              .lanes = {{"DP, cpu:0",
                         {{0, static_cast<double>(through_first), Span::Communicate}},
                         human_bytes(through_first)},
                        {"DDP, rank 0",
                         {{0, static_cast<double>(ring), Span::Communicate}},
                         human_bytes(ring)}},
              .end = most,
              .key = {{Span::Communicate, "bytes out and in"}},
              .unit = "bytes"});
  page.text(
      "With n devices DP's first one moves (n - 1) times as much, while a rank of DDP never moves "
      "more than 4 times the gradients, and does so during backward.");
  page.text("Memory at its peak, from the allocator's accounts:");
  std::vector<Lane> bars;
  double peak = 0;
  const auto bar = [&](std::string label, int64_t bytes) {
    peak = std::max(peak, static_cast<double>(bytes));
    bars.push_back({std::move(label), {{0, static_cast<double>(bytes)}}, human_bytes(bytes)});
    page.facts["peak_bytes"].push_back(bytes);
  };
  for (const Device device : devices) bar("DP, " + str(device), memory_stats(device).peak_bytes);
  for (size_t r = 0; r < ddp.size(); ++r) bar(fmt::format("DDP, rank {}", r), ddp[r]["peak"]);
  page.chart({.name = "memory of each device at its peak",
              .lanes = bars,
              .end = peak,
              .key = {{Span::Compute, "memory at its peak"}},
              .unit = "bytes"});
  page.text(
      "DP's first device holds optimizer, outputs and loss of all; "
      "the others idle while it works alone. DDP's ranks are alike.");
  page.facts["parameter_bytes"] = bytes_of(network->parameters());
  page.facts["copies"] = counted;
  page.facts["dp_busiest_bytes"] = through_first;
  page.facts["ddp_sent_bytes"] = ddp[0]["sent"];
  page.read(
      "distributed/data_parallel.cpp", "Tensor DataParallel::forward(",
      "scatter, replicate, apply and gather, in that order; broadcast() above it has the way back");
}

}  // namespace
}  // namespace ringgrad::program::dp_topic

const ringgrad::program::Topic ringgrad::program::kDp{
    "dp", "what DataParallel moves and holds in a step, beside DDP", dp_topic::tell,
    dp_topic::on_rank};
