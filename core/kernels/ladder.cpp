#include "ringgrad/core/kernels/ladder.h"

#include <algorithm>

#include "ringgrad/core/device/timer.h"

namespace ringgrad {
namespace {

std::vector<Ladder>& registered() {
  static std::vector<Ladder> ladders;
  return ladders;
}

}  // namespace

const std::vector<Ladder>& ladders() { return registered(); }

const Ladder* find_ladder(std::string_view kernel) {
  for (const Ladder& ladder : registered())
    if (ladder.kernel == kernel) return &ladder;
  return nullptr;
}

double seconds_per_call(Device device, const std::function<void(Stream)>& call) {
  const Stream stream = current_stream(device);
  const auto mean = [&](int count) {
    const auto timer = start_timer(stream);
    for (int i = 0; i < count; ++i) call(stream);
    timer->stop();
    return timer->milliseconds() * 1e-3 / count;
  };
  mean(2);  // warms up
  return mean(static_cast<int>(std::clamp(0.3 / mean(1), 2.0, 20.0)));
}

bool register_ladder(Ladder ladder) {
  std::vector<Ladder>& all = registered();
  const auto behind = std::find_if(all.begin(), all.end(), [&](const Ladder& other) {
    return std::string_view(ladder.kernel) < other.kernel;
  });
  all.insert(behind, std::move(ladder));
  return true;
}

}  // namespace ringgrad
