// The time of a training step of networks that users bring, on the CPU: forward, cross entropy,
// backward, SGD with momentum.
//
//   networks NAME float32|bfloat16 SECONDS [profile]
//
// Prints {"step_ms": median, "first_s": to the end of the first step, "peak_mb"}, and with
// `profile` a step's kernels instead, by their time. bfloat16 is autocast's. kNetworks has the
// inputs, which are of 10 classes. RINGGRAD_THREADS=1 makes it processor time.
// peers/networks_pytorch.py has the same networks; networks.py runs both in turn.
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/bench/networks.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/kernel_profile.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/nn/optim/optimizers.h"

using namespace ringgrad;

namespace {

// In seconds: this process's time of processors where it has one thread, which other programs do
// not lengthen; else the time on the wall.
double now() {
  timespec time{};
  const bool one_thread = thread_count(current_stream(Device())) == 1;
  clock_gettime(one_thread ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void print_profile(const std::function<void()>& step) {
  std::map<std::string, std::pair<double, double>> sums;
  double total = 0;
  {
    const KernelProfile profile;
    step();
    for (const KernelCall& call : profile.calls()) {
      auto& [ms, bytes] = sums[call.plan.empty() ? call.kernel : call.kernel + (" " + call.plan)];
      ms += call.milliseconds;
      bytes += call.bytes;
      total += call.milliseconds;
    }
  }
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& [name, sum] : sums)
    rows.emplace_back(sum.first,
                      fmt::format("{:8.2f} ms  {:8.1f} MB  {}", sum.first, sum.second / 1e6, name));
  std::sort(rows.rbegin(), rows.rend());
  for (const auto& [ms, row] : rows) fmt::print("{}\n", row);
  fmt::print("{:8.2f} ms in kernels\n", total);
}

}  // namespace

int main(int argc, char** argv) {
  const auto network = argc >= 4 ? kNetworks.find(argv[1]) : kNetworks.end();
  const std::string dtype = argc >= 4 ? argv[2] : "";
  if (network == kNetworks.end() || (dtype != "float32" && dtype != "bfloat16")) {
    fmt::print(stderr, "networks NAME float32|bfloat16 SECONDS [profile]; the names:");
    for (const auto& [name, make] : kNetworks) fmt::print(stderr, " {}", name);
    fmt::print(stderr, "\n");
    return 2;
  }
  const double start = now();
  const auto& [make, input] = network->second;
  const auto net = make();
  optim::SGD optimizer(net->parameters(), {.lr = 0.01, .momentum = 0.9});
  const Tensor x = randn(input);
  const Shape labelled =
      network->first == "U-Net" ? Shape{input[0], input[2], input[3]} : Shape{input[0]};
  const Tensor labels = to(rand(labelled) * 9.99, DType::Int64);
  const auto step = [&] {
    optimizer.zero_grad();
    Tensor loss;
    {
      const AutocastGuard autocast(dtype == "bfloat16" ? std::optional(DType::BFloat16)
                                                       : std::nullopt);
      loss = cross_entropy((*net)(x), labels);
    }
    loss.backward();
    optimizer.step();
  };
  step();
  const double first = now() - start;
  step();
  if (argc > 4) {
    print_profile(step);
    return 0;
  }
  std::vector<double> times;
  for (const double begin = now(); times.size() < 3 || now() - begin < std::stod(argv[3]);) {
    const double one = now();
    step();
    times.push_back(1e3 * (now() - one));
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const nlohmann::ordered_json result = {{"step_ms", times[times.size() / 2]},
                                         {"first_s", first},
                                         {"peak_mb", static_cast<double>(used.ru_maxrss) / 1e3}};
  fmt::print("{}\n", result.dump());
}
