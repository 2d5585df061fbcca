// The commands `ringgrad bench …`: their options, and statistics of their samples.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ringgrad::program {

// The variable that names the file in which rank 0 writes the ranks' measurements, for the process
// that started them.
inline constexpr const char* kFileVariable = "RINGGRAD_BENCH_FILE";

// Training on noise that is divided over ranks.
struct WorkloadOptions {
  std::string model = "resnet20";
  std::string device = "cpu", backend;  // backend "": as the device is
  int64_t batch = 128;                  // the batch of all ranks together
  int ranks = 2;
  double bucket_mb = 0;  // as ParallelConfig's
};

// Returns the quantile q of the samples; 0 if there are none.
inline double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
}
inline double median(std::vector<double> samples) { return quantile(std::move(samples), 0.5); }

}  // namespace ringgrad::program
