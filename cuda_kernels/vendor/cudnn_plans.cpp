#include "ringgrad/cuda_kernels/vendor/cudnn_plans.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/kernels/autotune.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

namespace ringgrad::cuda {
namespace {

constexpr size_t kLargestWorkspace = size_t{1} << 30;

// The engines of a graph on this thread's handle, and the plans made from them.
class Candidates {
 public:
  Candidates(cudnnHandle_t handle, std::shared_ptr<OperationGraph> graph, DType dtype)
      : target_{handle}, graph_(graph) {
    for (GraphPart& engine : graph->engines(target_, dtype)) {
      const auto bytes = static_cast<size_t>(engine.number(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE));
      if (bytes > kLargestWorkspace) continue;
      workspace_bytes_ = std::max(workspace_bytes_, bytes);
      engines_.push_back(std::move(engine));
    }
    plans_.resize(engines_.size());
  }

  size_t size() const { return engines_.size(); }
  size_t workspace_bytes() const { return workspace_bytes_; }  // enough for each of them

  // The plan is made at the first call. Throws NotImplementedError if cuDNN cannot make it after
  // all.
  GraphPlan& plan(size_t i) {
    if (!plans_[i]) plans_[i].emplace(target_, graph_, std::move(engines_[i]));
    return *plans_[i];
  }

 private:
  GraphTarget target_;
  std::shared_ptr<OperationGraph> graph_;
  std::vector<GraphPart> engines_;
  std::vector<std::optional<GraphPlan>> plans_;
  size_t workspace_bytes_ = 0;
};

std::optional<GraphPlan> choose(Stream stream, const char* operation, const std::string& call,
                                Candidates candidates, std::span<void* const> addresses) {
  // All plans share one workspace. The timed runs are in graphs, which keep its address.
  const Tensor workspace = cudnn_workspace(stream, candidates.workspace_bytes());
  std::vector<std::function<bool(Stream)>> runs;
  for (size_t i = 0; i < candidates.size(); ++i)
    runs.push_back([&, i](Stream on) {
      const GraphPlan& plan = candidates.plan(i);
      return plan.workspace_bytes() <= candidates.workspace_bytes() &&
             plan.run(operation, cudnn_handle(operation, on), addresses, workspace.raw_data());
    });
  const std::optional<size_t> best =
      fastest_plan(stream, str(call, ", cuDNN ", cudnnGetVersion()), runs);
  if (!best) return {};
  return std::move(candidates.plan(*best));
}

// The known results: for each handle and call a plan, or that there is none. One thread at a time
// uses a handle, and so its plans.
class KnownPlans {
 public:
  const std::optional<GraphPlan>* find(cudnnHandle_t handle, const std::string& call) {
    std::lock_guard lock(mutex_);
    const auto at = plans_.find({handle, call});
    return at == plans_.end() ? nullptr : &at->second;
  }
  // Drops the chosen plan because it does not run any more. The call has no plan from now on.
  void give_up(cudnnHandle_t handle, const std::string& call) {
    std::lock_guard lock(mutex_);
    plans_[{handle, call}].reset();
    if (!given_up_.insert(call).second) return;
    std::cerr << str("cuDNN's plan for ", call, " was the fastest and does not run any more; ",
                     "native kernels take its place\n");
  }
  const std::optional<GraphPlan>* add(cudnnHandle_t handle, const std::string& call,
                                      std::optional<GraphPlan> plan) {
    std::lock_guard lock(mutex_);
    return &plans_.emplace(std::pair(handle, call), std::move(plan)).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<cudnnHandle_t, std::string>, std::optional<GraphPlan>> plans_;
  std::set<std::string> given_up_;  // each is reported once
};

bool is_aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % kGraphAlignment == 0;
}

}  // namespace

bool run_fastest(Stream stream, const char* operation, const std::string& signature, DType dtype,
                 const std::function<std::shared_ptr<OperationGraph>()>& build,
                 std::span<void* const> addresses) {
  static auto* const known = new KnownPlans;  // never destroyed, like the handles
  if (!std::all_of(addresses.begin(), addresses.end(), is_aligned)) return false;
  const cudnnHandle_t handle = cudnn_handle(operation, stream);
  if (!handle) return false;
  const std::string call =
      dtype == DType::Float32 && allows_tf32() ? signature + " tf32" : signature;
  const std::optional<GraphPlan>* plan = known->find(handle, call);
  if (!plan) {
    if (device_backend(stream.device.type).capturing()) return false;
    std::optional<GraphPlan> found;
    try {
      found = choose(stream, operation, call, Candidates(handle, build(), dtype), addresses);
    } catch (const NotImplementedError&) {  // cuDNN has no plan for it
    }
    plan = known->add(handle, call, std::move(found));
    cudnn_handle(operation, stream);  // restores the stream, because the timed plans ran on others
  }
  if (!*plan) return false;
  const Tensor workspace = cudnn_workspace(stream, (*plan)->workspace_bytes());
  if ((*plan)->run(operation, handle, addresses, workspace.raw_data())) return true;
  known->give_up(handle, call);
  return false;
}

}  // namespace ringgrad::cuda
