// DataParallel: one process, one replica of the module per device, one thread per replica. It does, step by step, what
// PyTorch's nn.DataParallel does, so that measuring it against DistributedDataParallel measures the two methods:
//
//   forward    scatter the batch over the devices, replicate the parameters to all of them (every time), apply the
//              replicas in parallel threads, gather their outputs on the first device, where the loss lives
//   backward   the replicas' graphs run in parallel, one engine thread per device; then the gradients of all replicas
//              are summed on the first device, which alone takes the optimizer's step
//
// What that costs shows in its shape: parameters travel out and gradients in through one device in every step, nothing
// overlaps (replication is one node, which waits for the last gradient), and the first device holds all outputs.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ringgrad/nn/module.h"

namespace ringgrad {

class DataParallel : public nn::Module {
 public:
  using MakeReplica = std::function<std::shared_ptr<nn::Module>()>;

  // `module` has its parameters and buffers on devices[0]; make_replica() makes modules of the same structure, whose
  // values do not matter. The wrapper registers the module under its own names: a state_dict has no "module." prefix.
  // Throws DeviceError where a device does not exist or the module lives elsewhere, ShapeError where a replica's
  // parameters differ. The module must outlive the wrapper.
  DataParallel(nn::Module& module, const MakeReplica& make_replica, std::vector<Device> devices);

  // x [N, …] on any device → the outputs [N, …] on devices[0]. The batch is cut into pieces of ⌈N / devices⌉ (PyTorch's
  // chunk rule), so a small batch may leave devices idle. An exception in a replica is rethrown with the replica's
  // number and device. Only the first replica's buffers (running statistics) are kept, as in PyTorch.
  Tensor forward(const Tensor& x) override;

 private:
  void replicate(size_t replicas);
  std::vector<Tensor> parallel_apply(const std::vector<Tensor>& inputs);

  nn::Module& module_;
  std::vector<Device> devices_;
  std::vector<std::shared_ptr<nn::Module>> replicas_;  // one per device
};

}  // namespace ringgrad
