// The commands `ringgrad bench …`: what each can be told, and what they say of their samples.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ringgrad::program {

// Where rank 0 of several writes what they have measured, for the process that started them.
inline constexpr const char* kFileVariable = "RINGGRAD_BENCH_FILE";

struct BenchAllReduceOptions {
  int ranks = 2;
  // backend "": as the device is.
  std::string device = "cpu", backend;
  // Or shm, tcp.
  std::string transport = "auto";
  // Or gather, exchange, ring, segmented, shared.
  std::string algorithm = "auto";
  // A least size of 0: the sizes 1 KiB, 64 KiB, 1, 4, 25 and 64 MiB.
  uint64_t min_bytes = 0, max_bytes = uint64_t{64} << 20;
  int factor = 2;
  // For each size.
  double seconds = 0.5;
  // 0: as many as `seconds` allow.
  int iterations = 0;
  int warmup = 5;
  // Shows also what the sums alone cost, with threads of one process.
  bool bound = false;
};
int bench_allreduce(const BenchAllReduceOptions& options);

struct BenchOpsOptions {
  int repetitions = 300;
};
int bench_ops(const BenchOpsOptions& options);

struct BenchKernelOptions {
  std::string kernel;         // "": says which there are, and their steps
  std::string step;           // its number or its name; "": all
  std::vector<int64_t> size;  // as the kernel's ladder names them; empty: its own
  std::string dtype;  // fp32, bf16, fp16; "": bf16, and fp32 for steps that take nothing else
};
int bench_kernel(const BenchKernelOptions& options);

struct BenchTrainOptions {
  std::string model = "cnn", dtype = "fp32", conv = "auto", provider = "auto", device = "cpu";
  std::string float32_matmul_precision = "highest";
  int64_t batch = 100;
  int threads = 0;  // 0: one per core
  int steps = 20, warm_up = 3;
  bool profile = false;
};
int bench_train(const BenchTrainOptions& options);

// Training on noise that is divided over ranks.
struct WorkloadOptions {
  std::string model = "resnet20";
  std::string device = "cpu", backend;  // backend "": as the device is
  int64_t batch = 128;                  // of all ranks together
  int ranks = 2;
  double bucket_mb = 0;  // as Division's
};

struct BenchDdpOptions : WorkloadOptions {
  // For a row and round.
  double seconds = 3;
  int rounds = 3;
  bool force = false;
  // --bucket-mb: the first one is ddp's, the others have rows of their own.
  std::vector<std::string> buckets;
  // Numbers of ranks to extrapolate to, and of the nodes they are spread over.
  std::vector<int> predict, nodes;
  // Between nodes.
  double network_us = 30, network_gbit = 25;
  // The run directory whose measurements to explain; "" : measure.
  std::string from;
  // The run directory; "" : runs/NNNN-bench-ddp-MODEL.
  std::string out;
  bool report = true;
  // Measure this row in this process, as one of its ranks; "" : all of them.
  std::string row;
};
int bench_ddp(const BenchDdpOptions& options);

struct BenchSameBitsOptions {
  std::vector<std::string> models = {"cnn", "resnet20", "resnet18"};
  int64_t batch = 64;  // of all ranks together
  int ranks = 2;       // with as many shards
  int shards = 4;      // of one process
  double seconds = 4;  // for each network
};
int bench_same_bits(const BenchSameBitsOptions& options);

// The sample below which the fraction q of the others lies; 0 of none.
inline double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
}
inline double median(std::vector<double> samples) { return quantile(std::move(samples), 0.5); }

}  // namespace ringgrad::program
