#include "ringgrad/distributed/ddp/module_watch.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/buckets/gradient_buckets.h"
#include "ringgrad/distributed/ddp/parameter_check.h"

namespace ringgrad {
namespace {

constexpr const char* kRemedy =
    "; change a module before it is wrapped, or wrap it and make its optimizer anew";

// Returns a hash of 20 bits, whose squares can be summed exactly over thousands of ranks.
double number_of(const std::vector<bool>& flags) {
  std::string text;
  for (const bool flag : flags) text += flag ? '1' : '0';
  return static_cast<double>(hash_of(text.data(), text.size()) & 0xfffff);
}

}  // namespace

ModuleWatch::ModuleWatch(ModuleState wrapped) : training_(std::move(wrapped.training)) {
  for (auto& [name, tensor] : wrapped.tensors)
    wrapped_.push_back({name, tensor, tensor.dtype(), tensor.device(), !tensor.requires_grad()});
}

std::optional<std::string> ModuleWatch::look(ModuleState now) {
  training_ = std::move(now.training);
  const size_t common = std::min(wrapped_.size(), now.tensors.size());
  for (size_t i = 0; i < common; ++i) {
    const Wrapped& was = wrapped_[i];
    const auto& [name, tensor] = now.tensors[i];
    if (name != was.name) {
      const bool added = std::none_of(wrapped_.begin(), wrapped_.end(),
                                      [&](const Wrapped& w) { return w.name == name; });
      return str(added ? name : was.name,
                 added ? " was added to" : " is no tensor of its own any more in",
                 " the module after that was wrapped", kRemedy);
    }
    if (!tensor.is_same(was.tensor))
      return str(name, " is another tensor than when the module was wrapped, and is not averaged",
                 kRemedy);
    if (tensor.dtype() != was.dtype || tensor.device() != was.device)
      return str(name, " is now ", tensor.dtype(), " on ", tensor.device(), ", but was ", was.dtype,
                 " on ", was.device, " when the module was wrapped", kRemedy);
    if (was.frozen && tensor.requires_grad() && !is_averaged(tensor))
      return str(
          name,
          " was frozen when the module was wrapped, and requires a gradient now, but would not be ",
          "averaged; wrap the module anew");
  }
  if (now.tensors.size() > common)
    return str(now.tensors[common].first, " was added to the module after that was wrapped",
               kRemedy);
  if (wrapped_.size() > common)
    return str(wrapped_[common].name,
               " is no tensor of its own any more in the module after that was wrapped", kRemedy);
  return {};
}

double ModuleWatch::modes() const {
  std::vector<bool> flags;
  for (const auto& [name, training] : training_) flags.push_back(training);
  return number_of(flags);
}

std::vector<std::string> ModuleWatch::mode_lines() const {
  std::vector<std::string> lines;
  for (const auto& [name, training] : training_)
    lines.push_back(str(name.empty() ? "the module" : name,
                        training ? " is in training" : " is in evaluation", " mode"));
  return lines;
}

Alike frozen(const NamedTensors& parameters) {
  std::vector<bool> flags;
  for (const auto& [name, parameter] : parameters) flags.push_back(parameter.requires_grad());
  return Alike::of(number_of(flags));
}

void check_frozen(ProcessGroup& group, const std::string& what, const Alike& sum, double summands,
                  const NamedTensors& parameters) {
  if (sum.on(summands)) return;
  std::vector<std::string> lines;
  for (const auto& [name, parameter] : parameters)
    lines.push_back(str(name, parameter.requires_grad() ? " requires a gradient" : " is frozen"));
  check_same_lines(group, what, "set of frozen parameters", lines,
                   "; freeze and unfreeze on all ranks before the same step");
}

}  // namespace ringgrad
