#include "ringgrad/distributed/planner/bucket_planner.h"

#include <algorithm>
#include <cmath>

namespace ringgrad {
namespace {

// In bytes: less is all latency, more is no overlap.
constexpr int64_t kSmallest = 4096;
constexpr int64_t kLargest = int64_t{25} << 20;

}  // namespace

BucketCaps plan_caps(const LinkModel& link, const std::vector<ReadyGradient>& gradients) {
  double bytes = 0;
  double first = gradients[0].seconds;
  double last = first;
  for (const ReadyGradient& gradient : gradients) {
    bytes += static_cast<double>(gradient.bytes);
    first = std::min(first, gradient.seconds);
    last = std::max(last, gradient.seconds);
  }
  const double travels = link.per_byte * bytes;
  const double computes = last - first;
  const double buckets = std::sqrt(std::min(travels, computes) / std::max(link.latency, 1e-9));
  const auto each = static_cast<int64_t>(std::ceil(bytes / std::max(1.0, std::round(buckets))));
  const int64_t cap = std::clamp(each, kSmallest, kLargest);
  return {cap, cap};
}

double finished(const LinkModel& link, const std::vector<ReadyGradient>& buckets) {
  double until = 0;
  for (const ReadyGradient& bucket : buckets)
    until = std::max(until, bucket.seconds) + link.seconds(static_cast<double>(bucket.bytes));
  return until;
}

BucketPlanner plan_by_measuring(ProcessGroup& group) {
  const auto samples = sample_all_reduce(group, {4 << 10, 64 << 10, 1 << 20}, 7);
  return [link = fit(samples)](const std::vector<ReadyGradient>& gradients) {
    return plan_caps(link, gradients);
  };
}

}  // namespace ringgrad
