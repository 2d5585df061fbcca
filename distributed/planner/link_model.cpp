#include "ringgrad/distributed/planner/link_model.h"

#include <algorithm>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {

LinkModel fit(std::span<const LinkSample> samples) {
  double w = 0;
  double wx = 0;
  double wxx = 0;
  double wt = 0;
  double wxt = 0;  // sums, each sample with the weight 1 / t²
  for (const auto& [x, t] : samples) {
    const double weight = t > 0 ? 1 / (t * t) : 0;
    w += weight;
    wx += weight * x;
    wxx += weight * x * x;
    wt += weight * t;
    wxt += weight * x * t;
  }
  const LinkModel only_bytes{0, wxx > 0 ? wxt / wxx : 0};
  const LinkModel only_latency{w > 0 ? wt / w : 0, 0};
  const double determinant = w * wxx - wx * wx;
  if (!(determinant > 1e-12 * w * wxx)) return only_bytes;
  const LinkModel line{(wxx * wt - wx * wxt) / determinant, (w * wxt - wx * wt) / determinant};
  return line.latency < 0 ? only_bytes : line.per_byte < 0 ? only_latency : line;
}

std::vector<LinkSample> sample_all_reduce(ProcessGroup& group, const std::vector<int64_t>& sizes,
                                          int repetitions) {
  constexpr int kWarmUp = 2;
  std::vector<LinkSample> samples;
  for (const int64_t bytes : sizes) {
    const int64_t count = std::max<int64_t>(1, bytes / 4);
    const Tensor x(group.allocate_shared(static_cast<size_t>(4 * count), group.device()), {count},
                   {1}, 0, DType::Float32);
    fill_(x, 0);
    for (int i = -kWarmUp; i < repetitions; ++i) {
      group.barrier().wait();
      const auto start = std::chrono::steady_clock::now();
      group.all_reduce(x).wait();
      synchronize(current_stream(group.device()));
      if (i >= 0) samples.push_back({static_cast<double>(4 * count), seconds_since(start)});
    }
  }
  return samples;
}

}  // namespace ringgrad
