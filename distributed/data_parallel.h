// DataParallel: one process, one replica of the module per device, one thread per replica. It does
// the same steps as PyTorch's nn.DataParallel, so that a comparison with DistributedDataParallel
// compares the two methods:
//
//   forward    scatter the batch over the devices, replicate the parameters to all of them (every
//              time), apply the replicas in parallel threads, gather their outputs on the first
//              device, where the loss lives
//   backward   the replicas' graphs run in parallel, one engine thread per device; then the
//              gradients of all replicas are summed on the first device, which alone takes the
//              optimizer's step
//
// The costs follow from these steps. In every step parameters go out, and gradients come in,
// through one device. Nothing overlaps, because replication is one node, which waits for the last
// gradient. And the first device holds all outputs.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "ringgrad/core/for_each_tensor.h"
#include "ringgrad/nn/module.h"

namespace ringgrad {

class DataParallel : public nn::Module {
 public:
  using MakeReplica = std::function<std::shared_ptr<nn::Module>()>;

  // `module` has its parameters and buffers on devices[0]. make_replica() makes modules of the same
  // structure, whose values do not matter. The wrapper registers the module under its own names, so
  // a state_dict has no "module." prefix. The module must outlive the wrapper. Throws DeviceError
  // if a device does not exist or the module lives elsewhere, ShapeError if a replica's parameters
  // differ.
  //
  // In every forward the replicas follow the module. They copy the values of parameters and
  // buffers, and their structure: added, dropped, replaced or tied ones. They also copy modes,
  // forward hooks (which run in each replica), and what a type's Module::follow_members() copies.
  // Other plain members stay as make_replica() has set them, for a batch of any size. If the
  // module's layers have changed since it was wrapped, make_replica() is called again. Throws Error
  // if the new replica does not have the same layers.
  DataParallel(nn::Module& module, const MakeReplica& make_replica, std::vector<Device> devices);

  // x [N, …] on any device → the outputs [N, …] on devices[0]. The batch is cut into pieces of ⌈N /
  // devices⌉ (PyTorch's chunk rule), so a small batch may leave devices idle. An exception in a
  // replica is rethrown with the replica's number and device. Only the first replica's buffers
  // (running statistics) are kept, as in PyTorch. Frozen parameters get no gradient in the replicas
  // either.
  Tensor forward(const Tensor& x) override;

  // Does the same for modules with several inputs and outputs. It calls function(replica, input, …)
  // on every device, and gathers the results: tensors, or tuples, vectors and structs of them
  // (core/for_each_tensor.h). Inputs are cut along dimension 0, all alike; inputs without
  // dimensions go to every device. An output without dimensions, such as a loss, becomes one with
  // an element for each replica, [replicas], as in PyTorch: take its mean. Results that are no
  // tensors come from the first replica.
  //   auto [logits, losses] = model.apply(
  //       [](nn::Module& m, const Tensor& x, const Tensor& y) {
  //         return static_cast<Net&>(m).forward(x, y);
  //       },
  //       x, y);  // or DP below
  template <class Function, class... Inputs>
  auto apply(const Function& function, const Inputs&... inputs) {
    using Output = decltype(function(module_, inputs...));
    std::vector<Tensor> whole;
    (for_each_tensor(inputs, [&](const Tensor& x) { whole.push_back(x); }), ...);
    const std::vector<std::vector<Tensor>> pieces = scatter(whole);
    const auto on_replica = [&](size_t r, nn::Module& replica) {
      std::tuple<Inputs...> own(inputs...);
      auto piece = pieces[r].begin();
      for_each_tensor(own, [&](Tensor& x) { x = *piece++; });
      return std::apply([&](const auto&... x) { return function(replica, x...); }, own);
    };
    if (devices_.size() == 1) return on_replica(0, module_);
    std::vector<std::optional<Output>> outputs(pieces.size());
    parallel_apply(pieces.size(),
                   [&](size_t r, nn::Module& replica) { outputs[r] = on_replica(r, replica); });
    if (outputs.size() == 1) return std::move(*outputs[0]);

    std::vector<std::vector<Tensor>> parts(outputs.size());
    for (size_t r = 0; r < outputs.size(); ++r)
      for_each_tensor(*outputs[r], [&](const Tensor& y) { parts[r].push_back(y); });
    const std::vector<Tensor> gathered = gather(parts);
    auto next = gathered.begin();
    for_each_tensor(*outputs[0], [&](Tensor& y) { y = *next++; });
    return std::move(*outputs[0]);
  }

 private:
  // [replica][input].
  std::vector<std::vector<Tensor>> scatter(const std::vector<Tensor>& inputs) const;
  void replicate(size_t replicas);
  void parallel_apply(size_t replicas,
                      const std::function<void(size_t r, nn::Module& replica)>& function);
  // [replica][output] → [output].
  std::vector<Tensor> gather(const std::vector<std::vector<Tensor>>& outputs) const;

  void make_replicas();
  void check_place() const;

  nn::Module& module_;
  MakeReplica make_replica_;
  std::vector<Device> devices_;
  std::vector<std::shared_ptr<nn::Module>> replicas_;  // one per device
};

// Throws ShapeError, beginning with `what`, unless a replica has the module's structure.
void check_replica(const char* what, nn::Module& module, nn::Module& replica);
// Runs body(r) for each replica: the first one on this thread, each other one on a thread of its
// own with this thread's modes. Throws the first replica's error after all have ended. `what`
// begins the message if a thread cannot be started.
void on_threads_of_replicas(const char* what, size_t replicas,
                            const std::function<void(size_t r)>& body);

// DataParallel with the module's own forward: DP model(net, make, devices); auto [logits, losses] =
// model(x, y);
template <class Net>
class DP : public DataParallel {
 public:
  DP(Net& module, const std::function<std::shared_ptr<Net>()>& make_replica,
     std::vector<Device> devices)
      : DataParallel(module, make_replica, std::move(devices)) {}
  template <class... Inputs>
  auto operator()(const Inputs&... inputs) {
    return apply([](nn::Module& m, const auto&... x) { return static_cast<Net&>(m).forward(x...); },
                 inputs...);
  }
};
template <class Net, class Make>
DP(Net&, Make, std::vector<Device>) -> DP<Net>;

}  // namespace ringgrad
