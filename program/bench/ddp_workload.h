// The workload that `bench ddp` measures and `trace` shows: a network that trains on noise, with
// its work divided over ranks or devices.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/distributed/data_parallel.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/program/bench/bench.h"

namespace ringgrad::program {

// Returns the bytes of all elements.
int64_t bytes_of(const std::vector<Tensor>& tensors);

// A network, this rank's part of a batch of noise, and the method that divides the work. Network
// and batch are the same with every method. So are the parameters after equally many steps, but for
// rounding and for batch norm, which only knows its own part of the batch.
class Workload {
 public:
  // `method`: "none", "dp" on options.ranks devices from options.device on, "ddp", "ddp_no_overlap"
  // or "ddp_traced" (its log exact on GPUs, too) on the ranks of the group, which must outlive
  // this. Collective with ddp.
  Workload(const WorkloadOptions& options, const std::string& method, ProcessGroup& group);

  // One step; begins() is told when each of its phases does: "zero_grad", "forward", "backward",
  // "optimizer".
  void step(const std::function<void(const char* phase)>& begins);
  // Returns the seconds per step after all ranks and their devices have done so many steps.
  // Collective.
  double block(
      int64_t steps, const std::function<void()>& after_step = [] {});
  double block_alone(int64_t steps);  // the same without communication; with ddp

  DistributedDataParallel* ddp() { return ddp_.get(); }  // null without
  nn::Module& model() { return *model_; }
  nn::NamedTensors parameters() const { return model_->named_parameters(); }
  const std::vector<Device>& devices() const { return devices_; }
  int64_t gradient_bytes() const;
  int64_t buffer_bytes() const;
  int64_t input_bytes() const;
  int64_t output_bytes() const;

 private:
  void meet();

  ProcessGroup& group_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  std::unique_ptr<DataParallel> dp_;
  nn::Module* network_;
  std::vector<Device> devices_;
  std::unique_ptr<optim::SGD> optimizer_;
  Tensor images_;
  Tensor labels_;
  Tensor output_;
};

// Seconds in which some bucket was under way, and those of them before this rank's last gradient
// was complete.
struct Communication {
  double all = 0;
  double hidden = 0;
};
Communication communication_of(const ReductionLog& log);

// "fc.weight layer4.1.bn2.bias … conv1.weight (62 parameters)" -> "fc.weight … conv1.weight"
std::string first_and_last(const std::string& names);

// A step, in milliseconds since backward began: step, backward_ms, averaged_ms, communication_ms,
// hidden_ms, and buckets in the order of launching.
nlohmann::json log_as_json(const ReductionLog& log);

}  // namespace ringgrad::program
