#include "ringgrad/program/trace/kernel_times.h"

#include "ringgrad/program/bench/bench.h"

namespace ringgrad::program {
namespace {

// Returns the one of consecutive slices in which a time lies, from `at` on; nullptr if there is
// none.
const Slice* around(const std::vector<Slice>& slices, int64_t time, size_t& at) {
  while (at < slices.size() && slices[at].end < time) ++at;
  return at < slices.size() && slices[at].begin <= time ? &slices[at] : nullptr;
}

}  // namespace

void KernelTimes::add(const StepRecord& step) {
  std::map<Key, double> own;
  size_t phase_at = 0;
  size_t layer_at = 0;
  int64_t until = 0;
  for (const Slice& kernel : step.kernels) {
    if (kernel.begin < until) continue;  // one that another has called
    until = kernel.end;
    const Slice* const phase = around(step.phases, kernel.begin, phase_at);
    const Slice* const layer = around(step.layers, kernel.begin, layer_at);
    if (!phase) continue;
    const std::string name = layer ? layer->name.substr(0, layer->name.find(' ')) : "";
    const Key key = {phase->name, name, kernel.name};
    const bool is_new = own.try_emplace(key, 0).second && !seconds_.contains(key);
    if (is_new) order_.push_back(key);
    own[key] += static_cast<double>(kernel.end - kernel.begin) * 1e-9;
  }
  for (const auto& [key, seconds] : own) seconds_[key].push_back(seconds);
}

std::vector<KernelTime> KernelTimes::medians() const {
  std::vector<KernelTime> times;
  for (const Key& key : order_) times.push_back({key[0], key[1], key[2], median(seconds_.at(key))});
  return times;
}

}  // namespace ringgrad::program
