// What benchmarks say of their samples.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace ringgrad::program {

// The sample below which the fraction q of the others lies; 0 of none.
inline double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  return samples[static_cast<size_t>(q * static_cast<double>(samples.size() - 1) + 0.5)];
}
inline double median(std::vector<double> samples) { return quantile(std::move(samples), 0.5); }

}  // namespace ringgrad::program
