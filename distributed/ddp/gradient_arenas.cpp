#include "ringgrad/distributed/ddp/gradient_arenas.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

std::mutex averaged_mutex;
// The set is never destroyed, because wrappers may be global.
std::set<const AutogradMeta*>& averaged = *new std::set<const AutogradMeta*>();

}  // namespace

SoleAverager::SoleAverager(const char* who, const NamedTensors& parameters) {
  const std::lock_guard lock(averaged_mutex);
  for (const auto& [name, parameter] : parameters)
    CHECK(!averaged.contains(parameter.autograd_meta().get()), who,
          ": another wrapper averages the gradient of ", name,
          " already, so it would be averaged twice; wrap a module once, "
          "or let the other wrapper go first, and wrap ",
          "modules that share a parameter together");
  for (const auto& [name, parameter] : parameters) {
    averaged.insert(parameter.autograd_meta().get());
    parameters_.push_back(parameter.autograd_meta());
  }
}

SoleAverager::~SoleAverager() {
  const std::lock_guard lock(averaged_mutex);
  for (const auto& parameter : parameters_) averaged.erase(parameter.get());
}

bool is_averaged(const Tensor& parameter) {
  const std::lock_guard lock(averaged_mutex);
  return averaged.contains(parameter.autograd_meta().get());
}

std::vector<ArenaRange> lay_out_gradients(ProcessGroup& group, const NamedTensors& parameters,
                                          const std::vector<int>& order) {
  std::vector<Tensor> backwards;  // flatten_parameters() reverses
  for (auto i = order.rbegin(); i != order.rend(); ++i) backwards.push_back(parameters[*i].second);
  flatten_parameters(backwards, [&](int64_t numel, TensorOptions options) {
    const auto bytes = static_cast<size_t>(numel) * itemsize(options.dtype);
    auto memory = group.reaches(options.device) ? group.allocate_shared(bytes, options.device)
                                                : std::make_shared<Storage>(bytes, options.device);
    const Tensor flat(std::move(memory), {numel}, {1}, 0, options.dtype);
    fill_(flat, 0);
    return flat;
  });
  std::vector<ArenaRange> arenas = arena_ranges(backwards);
  for (ArenaRange& arena : arenas) {
    arena.values = {};  // who moves the parameters away can let that memory go
    for (int& i : arena.parameters) i = order[order.size() - 1 - static_cast<size_t>(i)];
  }
  // arena_ranges() lists them by address, which differs from rank to rank.
  std::sort(arenas.begin(), arenas.end(), [](const ArenaRange& a, const ArenaRange& b) {
    return a.grads.dtype() < b.grads.dtype();
  });
  return arenas;
}

}  // namespace ringgrad
