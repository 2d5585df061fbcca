// `ringgrad bench allreduce`: float32 sums between ranks of this machine, in nccl-tests' table. "In
// place" means memory that the ranks share if they can, as gradients do. "Out of place" means from
// one of a rank's own tensors to another. On a GPU a time ends when the device has done the queued
// work.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/kernels/reduction.h"
#include "ringgrad/distributed/agreement/transport_names.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/parallel_config.h"

namespace ringgrad::program {
namespace {

struct BenchAllReduceOptions {
  int ranks = 2;
  // backend "": as the device is.
  std::string device = "cpu";
  std::string backend;
  // Or shm, tcp.
  std::string transport = "auto";
  // Or gather, exchange, ring, segmented, direct, shared.
  std::string algorithm = "auto";
  // If it is 0 the sizes are 1 KiB, 64 KiB, 1, 4, 25 and 64 MiB.
  uint64_t min_bytes = 0;
  uint64_t max_bytes = uint64_t{64} << 20;
  int factor = 2;
  // The time for each size.
  double seconds = 0.5;
  // 0: as many as `seconds` allow.
  int iterations = 0;
  int warmup = 5;
  // Also shows the cost of the sums alone, with threads of one process.
  bool bound = false;
};

using Clock = std::chrono::steady_clock;

constexpr int64_t kBoundFrom = 1 << 20;  // below, the bound would measure how threads meet

// Ranks and threads stay on a core of their own, as mpirun puts them: two on one core would measure
// the scheduler.
void stay_on_core(int i) {
  static const cpu_set_t allowed = [] {
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return set;
  }();
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0, left = i % CPU_COUNT(&allowed); cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && left-- == 0) CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

struct Times {  // microseconds
  double low = 0;
  double median = 0;
  double high = 0;
};

Times times_of(const std::vector<double>& seconds) {
  return {1e6 * quantile(seconds, 0.25), 1e6 * median(seconds), 1e6 * quantile(seconds, 0.75)};
}

float pattern(int64_t i) { return static_cast<float>(i % 1000); }

void fill(const Tensor& x, float factor) {
  const Tensor host = empty(x.shape());
  for (int64_t i = 0; i < x.numel(); ++i) host.data<float>()[i] = factor * pattern(i);
  copy_(x, host);
}

int64_t wrong_elements(const Tensor& x, int ranks) {
  const float factor = static_cast<float>(ranks * (ranks + 1) / 2);
  const Tensor host = to(x, Device());
  int64_t wrong = 0;
  for (int64_t i = 0; i < x.numel(); ++i)
    wrong += host.data<float>()[i] == factor * pattern(i) ? 0 : 1;
  return wrong;
}

// The same sums without ranks: thread t of `ranks` adds slice t of as many buffers and stores it
// into all of them.
std::vector<double> threads_of_one_process(const std::vector<Tensor>& buffers, int repetitions) {
  const int threads = static_cast<int>(buffers.size());
  std::vector<void*> data;
  for (const Tensor& buffer : buffers) data.push_back(buffer.raw_data());
  const ReduceFunctions& sum = reduction("bench", DType::Float32, ReduceOp::Sum);
  const auto count = static_cast<size_t>(buffers[0].numel());
  std::atomic<int> arrived = 0;
  const auto meet = [&](int& meetings) {
    ++arrived;
    const int all = ++meetings * threads;
    for (int spins = 0; arrived < all; ++spins)
      if (spins > 1000) std::this_thread::yield();  // more threads than cores: let the others run
  };
  std::vector<double> seconds;
  const auto work = [&](int thread) {
    stay_on_core(thread);
    const auto edge = [&](int t) {
      return count * static_cast<size_t>(t) / static_cast<size_t>(threads) / 16 * 16;
    };
    for (int repetition = 0, meetings = 0; repetition < repetitions; ++repetition) {
      meet(meetings);
      const auto start = Clock::now();
      sum.reduce_all(data.data(), threads, data.data(), threads, edge(thread),
                     thread + 1 == threads ? count : edge(thread + 1));
      meet(meetings);
      if (thread == 0) seconds.push_back(seconds_since(start));
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  work(0);
  for (std::thread& other : others) other.join();
  return seconds;
}

struct SizeRow {
  int64_t bytes = 0;
  int repetitions = 0;
  Times in_place;
  Times out_of_place;
  Times bound;
  int64_t wrong = 0;
  int64_t wrong_out_of_place = 0;
};

class Measurement {
 public:
  Measurement(ProcessGroup& group, const BenchAllReduceOptions& options, int64_t bytes)
      : group_(group), options_(options), count_(bytes / 4) {
    const Device device = group.device();
    x_ = Tensor(group.allocate_shared(static_cast<size_t>(bytes), device), {count_}, {1}, 0,
                DType::Float32);
    in_ = zeros({count_}, {.device = device});
    out_ = zeros({count_}, {.device = device});
    if (options.bound && bytes >= kBoundFrom && group.is_main_process())
      for (int r = 0; r < group.size(); ++r) buffers_.push_back(zeros({count_}));
  }

  SizeRow run() {
    SizeRow row;
    row.bytes = 4 * count_;
    fill(x_, static_cast<float>(group_.rank() + 1));
    fill(in_, static_cast<float>(group_.rank() + 1));
    in_place();
    out_of_place();
    row.wrong = total(wrong_elements(x_, group_.size()));
    row.wrong_out_of_place = total(wrong_elements(out_, group_.size()));
    fill(x_, 0);  // repeated sums would overflow
    for (int i = 0; i < options_.warmup; ++i) {
      in_place();
      out_of_place();
    }
    row.repetitions = agree_on_repetitions();

    // In turn, so that whatever else the machine does meets all of them.
    constexpr int kTurn = 10;
    std::vector<double> in;
    std::vector<double> out;
    std::vector<double> bound;
    for (int done = 0; done < row.repetitions; done += kTurn) {
      const int turn = std::min(kTurn, row.repetitions - done);
      for (int i = 0; i < turn; ++i) in.push_back(in_place());
      for (int i = 0; i < turn; ++i) out.push_back(out_of_place());
      if (!buffers_.empty()) {
        const auto more = threads_of_one_process(buffers_, turn);
        bound.insert(bound.end(), more.begin(), more.end());
      }
    }
    row.in_place = times_of(means_over_ranks(in));
    row.out_of_place = times_of(means_over_ranks(out));
    row.bound = times_of(bound);
    return row;
  }

 private:
  template <class Body>
  double seconds_of(Body&& body) {
    group_.barrier().wait();
    const auto start = Clock::now();
    body();
    synchronize(current_stream(group_.device()));
    return seconds_since(start);
  }
  double in_place() {
    return seconds_of([&] { group_.all_reduce(x_).wait(); });
  }
  double out_of_place() {
    return seconds_of([&] {
      copy_(out_, in_);
      group_.all_reduce(out_).wait();
    });
  }

  // A rank that leaves the barrier early waits for the others' latency, and one that leaves it late
  // does not: over a slow link one rank's times mean little.
  std::vector<double> means_over_ranks(const std::vector<double>& seconds) {
    const Tensor x = tensor(seconds);
    group_.all_reduce(x, ReduceOp::Average).wait();
    return to_vector<double>(x);
  }

  int64_t total(int64_t n) {
    const Tensor sum = full({1}, static_cast<double>(n), {.dtype = DType::Int64});
    group_.all_reduce(sum).wait();
    return sum.data<int64_t>()[0];
  }

  int agree_on_repetitions() {
    const double once = means_over_ranks({in_place() + out_of_place()})[0];
    const int wanted = options_.iterations > 0
                           ? options_.iterations
                           : std::clamp(static_cast<int>(options_.seconds / once), 10, 100'000);
    const Tensor agreed = full({1}, wanted, {.dtype = DType::Int64});
    group_.broadcast(agreed, 0).wait();
    return static_cast<int>(agreed.data<int64_t>()[0]);
  }

  ProcessGroup& group_;
  const BenchAllReduceOptions& options_;
  const int64_t count_;
  Tensor x_;
  Tensor in_;
  Tensor out_;
  std::vector<Tensor> buffers_;
};

std::string cells(double microseconds, int64_t bytes, int ranks, int64_t wrong) {
  const double bandwidth = static_cast<double>(bytes) / microseconds / 1e3;
  return fmt::format("{:>9}{:>8.2f}{:>8.2f}{:>7}",
                     fmt::format("{:.{}f}", microseconds, microseconds < 100 ? 2 : 1), bandwidth,
                     bandwidth * 2 * (ranks - 1) / ranks, wrong);
}

void print_head(const ProcessGroup& group, const BenchAllReduceOptions& options) {
  result(
      "# nranks {} backend {} algorithm {} warmup iters: {} check: on, medians of means over ranks",
      group.size(), group.backend(), options.algorithm, options.warmup);
  result("#");
  result("#{:>57}{:>39}", "out-of-place", "in-place");
  const std::string names = fmt::format("{:>9}{:>8}{:>8}{:>7}", "time", "algbw", "busbw", "#wrong");
  const std::string units = fmt::format("{:>9}{:>8}{:>8}{:>7}", "(us)", "(GB/s)", "(GB/s)", "");
  result("#{:>11}{:>14}{:>10}{:>8}{:>8}{}{}", "size", "count", "type", "redop", "root", names,
         names);
  result("#{:>11}{:>14}{:>10}{:>8}{:>8}{}{}", "(B)", "(elements)", "", "", "", units, units);
}

void print_row(const SizeRow& row, int ranks) {
  result("{:>12}{:>14}{:>10}{:>8}{:>8}{}{}", row.bytes, row.bytes / 4, "float", "sum", -1,
         cells(row.out_of_place.median, row.bytes, ranks, row.wrong_out_of_place),
         cells(row.in_place.median, row.bytes, ranks, row.wrong));
  if (row.bound.median > 0)
    result(
        "#{:>11} the same sums by {} threads of one process: {:.1f} us, {:.0f} % of the time above",
        "", ranks, row.bound.median, 100 * row.bound.median / row.in_place.median);
}

nlohmann::json to_json(const SizeRow& row, int ranks) {
  const double algbw = static_cast<double>(row.bytes) / row.in_place.median / 1e3;
  nlohmann::json json = {{"bytes", row.bytes},
                         {"time_us", row.in_place.median},
                         {"quartiles_us", {row.in_place.low, row.in_place.high}},
                         {"algbw_GBps", algbw},
                         {"busbw_GBps", algbw * 2 * (ranks - 1) / ranks},
                         {"out_of_place_us", row.out_of_place.median},
                         {"repetitions", row.repetitions},
                         {"wrong", row.wrong + row.wrong_out_of_place}};
  if (row.bound.median > 0) json["threads_of_one_process_us"] = row.bound.median;
  return json;
}

std::vector<int64_t> sizes(const BenchAllReduceOptions& options) {
  std::vector<int64_t> sizes;
  if (options.min_bytes == 0) {
    for (const uint64_t kib : {1, 64, 1 << 10, 4 << 10, 25 << 10, 64 << 10})
      if (kib << 10 <= options.max_bytes) sizes.push_back(static_cast<int64_t>(kib << 10));
    return sizes;
  }
  const auto factor = static_cast<uint64_t>(options.factor);
  for (uint64_t bytes = std::max<uint64_t>(options.min_bytes, 4); bytes <= options.max_bytes;
       bytes *= factor) {
    sizes.push_back(static_cast<int64_t>(bytes / 4 * 4));
    if (bytes > options.max_bytes / factor) break;  // the next one might not fit into 64 bits
  }
  return sizes;
}

void measure(const BenchAllReduceOptions& options) {
  ProcessGroup& group = process_group();
  const bool main = group.is_main_process();
  stay_on_core(group.rank());
  if (main) print_head(group, options);
  nlohmann::json rows = nlohmann::json::array();
  int64_t wrong = 0;
  double bus_bandwidths = 0;
  for (const int64_t bytes : sizes(options)) {
    const SizeRow row = Measurement(group, options, bytes).run();
    if (!main) continue;
    print_row(row, group.size());
    rows.push_back(to_json(row, group.size()));
    wrong += row.wrong + row.wrong_out_of_place;
    bus_bandwidths += rows.back()["busbw_GBps"].get<double>();
  }
  if (!main) return;
  result("# Out of bounds values : {} {}", wrong, wrong == 0 ? "OK" : "FAILED");
  result("# Avg bus bandwidth    : {:.4g}",
         rows.empty() ? 0 : bus_bandwidths / static_cast<double>(rows.size()));
  print_json({{"ranks", group.size()},
              {"backend", group.backend()},
              {"device", str(group.device())},
              {"rows", rows}});
  if (wrong > 0) throw Error(fmt::format("bench allreduce: {} wrong elements", wrong));
}

int bench_allreduce(const BenchAllReduceOptions& options) {
  const std::vector<std::pair<std::string, AllReduceAlgorithm>> algorithms = {
      {"auto", AllReduceAlgorithm::Auto},
      {"gather", AllReduceAlgorithm::GatherBroadcast},
      {"exchange", AllReduceAlgorithm::Exchange},
      {"ring", AllReduceAlgorithm::Ring},
      {"segmented", AllReduceAlgorithm::SegmentedRing},
      {"direct", AllReduceAlgorithm::Direct},
      {"shared", AllReduceAlgorithm::SharedMemory}};
  const auto algorithm = std::find_if(algorithms.begin(), algorithms.end(), [&](const auto& known) {
    return known.first == options.algorithm;
  });
  if (algorithm == algorithms.end())
    throw UsageError("bench allreduce: no algorithm '" + options.algorithm +
                     "'; auto, gather, exchange, ring, segmented, direct or shared");
  if (!is_transport(options.transport))
    throw UsageError("bench allreduce: no transport '" + options.transport + "'; " +
                     transport_choices());
  const ChannelKind* kind = find_channel_kind(options.transport);
  if (kind && kind->reach != Reach::Memory && algorithm->second == AllReduceAlgorithm::SharedMemory)
    throw UsageError(
        "bench allreduce: --algorithm shared works in memory that ranks share, "
        "not over --transport {}",
        options.transport);
  if (sizes(options).empty())
    throw UsageError(
        "bench allreduce: no size from -b {} to -e {}; expected the first to be smaller, "
        "and without -b at least 1K",
        options.min_bytes, options.max_bytes);
  const RankEnvironment here = rank_environment();
  const int ranks = here.source.empty() ? options.ranks : here.size;
  check_ranks("bench allreduce", ranks, options.device, options.backend);
  InitOptions group = group_options_for(options.device, options.backend);
  if (group.backend != "ring" && (options.transport != "auto" || options.algorithm != "auto"))
    throw UsageError(
        "bench allreduce: --transport and --algorithm are the ring's, "
        "and the backend is {}; leave them out",
        group.backend);
  if (options.bound && !Device(options.device).is_cpu())
    throw UsageError(
        "bench allreduce: --bound times the CPU's threads; leave it out with --device " +
        options.device);
  group.transport = options.transport;
  group.algorithm = algorithm->second;
  return report_end(launch_or_throw(
      [&] { measure(options); },
      {.num_processes = ranks, .group = group, .environment = document_for_ranks()}));
}

void add_options(CLI::App* app, BenchAllReduceOptions& o) {
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--ranks", o.ranks, "processes")->check(CLI::Range(2, 256));
  add_device_option(app, o.device);
  app->add_option("--backend", o.backend, parallel_config_field("backend").help);
  app->add_option("--transport", o.transport, "of the ring: " + transport_choices());
  app->add_option("--algorithm", o.algorithm,
                  "of the ring: auto, gather, exchange, ring, segmented, direct or shared");
  auto* smallest = app->add_option("-b,--minbytes", o.min_bytes, "smallest size, such as 8 or 1M")
                       ->default_str("1K, 64K, 1M, 4M, 25M and 64M")
                       ->transform(CLI::AsSizeValue(false));
  app->add_option("-e,--maxbytes", o.max_bytes, "largest size")
      ->default_str("64M")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("-f,--stepfactor", o.factor, "with -b: from one size to the next")
      ->needs(smallest)
      ->check(CLI::Range(2, 1024));
  app->add_option("-n,--iters", o.iterations, "repetitions")
      ->default_str("what --seconds allow")
      ->check(kPositive);
  app->add_option("-w,--warmup_iters", o.warmup, "repetitions before")->check(kNotNegative);
  app->add_option("--seconds", o.seconds, "for each size")->check(CLI::Range(0.01, 1000.0));
  app->add_flag("--bound", o.bound, "also time the same sums by threads of one process");
}

const Command kBenchAllreduce(192, "bench allreduce",
                              "All-reduce between ranks of this machine, as nccl-tests reports it",
                              bench_allreduce, add_options);

}  // namespace
}  // namespace ringgrad::program
