// The part of Optimizer by which processes share its steps. The layout of its arrays is in
// optimizer.cpp, because it is the same for all optimizers.
#include <algorithm>
#include <map>
#include <mutex>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/nn/optim/optimizer.h"

namespace ringgrad::optim {
namespace {

std::mutex sharing_mutex;
BEFORE_MAIN(sharing, hold_over_fork(sharing_mutex));
// By parameter; the last of several optimizers counts. The map is never destroyed, because
// optimizers may be global.
std::map<const AutogradMeta*, std::vector<Optimizer*>>& sharing =
    *new std::map<const AutogradMeta*, std::vector<Optimizer*>>();

}  // namespace

void Optimizer::share(std::shared_ptr<const StepShare> share) {
  CHECK(steps_elements(), name_,
        ": a step needs whole parameters, so ranks cannot step a part each; use another optimizer");
  CHECK(step_.item<int64_t>() == 0, name_, ": share() after the first step, expected before it");
  share_ = std::move(share);
  std::vector<std::shared_ptr<AutogradMeta>> parameters;
  for (Group& group : groups_) {
    group.state.clear();
    group.layout = -1;
    for (const Tensor& parameter : group.parameters)
      parameters.push_back(parameter.autograd_meta());
  }
  shares_.reset();
  const std::lock_guard lock(sharing_mutex);
  for (const auto& parameter : parameters) sharing[parameter.get()].push_back(this);
  shares_ = {this, [parameters](void* self) {
               const std::lock_guard at_the_end(sharing_mutex);
               for (const auto& parameter : parameters) {
                 const auto found = sharing.find(parameter.get());
                 std::erase(found->second, self);
                 if (found->second.empty()) sharing.erase(found);
               }
             }};
}

std::vector<Optimizer*> sharing_optimizers(const char* name,
                                           const std::vector<Tensor>& parameters) {
  const std::lock_guard lock(sharing_mutex);
  std::map<Optimizer*, size_t> met;
  std::vector<Optimizer*> optimizers;
  for (const Tensor& parameter : parameters) {
    if (!parameter.defined() || !parameter.is_leaf()) continue;
    const auto found = sharing.find(parameter.autograd_meta().get());
    if (found == sharing.end()) continue;
    Optimizer* const last = found->second.back();
    if (met[last]++ == 0) optimizers.push_back(last);
  }
  for (const auto& [optimizer, count] : met) {
    const auto all = std::count_if(sharing.begin(), sharing.end(), [&](const auto& entry) {
      return entry.second.back() == optimizer;
    });
    CHECK(static_cast<size_t>(all) == count, name, ": ", count, " of the ", all,
          " parameters of an optimizer whose steps ranks share; no rank has a parameter's whole "
          "gradient, so give all of them at once");
  }
  return optimizers;
}

}  // namespace ringgrad::optim
