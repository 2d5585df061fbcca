#include "models/program/bench_ddp_row.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "core/allocator.h"
#include "core/factory.h"
#include "core/random.h"
#include "distributed/data_parallel.h"
#include "distributed/distributed_data_parallel.h"
#include "models/program/quantile.h"
#include "models/registry.h"
#include "nn/optim/sgd.h"

namespace ringgrad::program {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kWarmUp = 5;
constexpr double kBlockSeconds = 0.25;

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += x.numel() * static_cast<int64_t>(itemsize(x.dtype()));
  return bytes;
}

// A network, this rank's part of a batch of noise, and the way in which the work is divided.
class Workload {
 public:
  Workload(const BenchDdpOptions& options, ProcessGroup& group) : group_(group) {
    manual_seed(static_cast<uint64_t>(group.rank()));
    const bool mnist = options.model == "cnn" || options.model == "lenet";
    const models::ModelOptions sizes{.in_channels = mnist ? 1 : 3, .image_size = mnist ? 28 : 32};
    const auto make = [=] { return models::make_model(options.model, sizes); };
    const int64_t batch = options.batch / group.size();
    images_ = empty({batch, sizes.in_channels, sizes.image_size, sizes.image_size});
    normal_(images_, 0, 1);
    std::vector<int64_t> labels(batch);
    for (int64_t i = 0; i < batch; ++i) labels[i] = i * 7 % sizes.num_classes;
    labels_ = tensor(labels);

    model_ = make();
    network_ = model_.get();
    if (options.row == "dp") {
      for (int i = 0; i < options.ranks; ++i) devices_.emplace_back(DeviceType::CPU, i);
      dp_ = std::make_unique<DataParallel>(*model_, make, devices_);
      network_ = dp_.get();
    } else {
      devices_ = {Device()};
    }
    if (options.row.starts_with("ddp")) {
      DistributedDataParallelOptions ddp;
      ddp.overlap = options.row == "ddp";
      if (options.bucket_mb > 0) ddp.caps.bytes = ddp.caps.first_bytes = static_cast<int64_t>(options.bucket_mb * 1e6);
      ddp_ = std::make_unique<DistributedDataParallel>(*model_, group, ddp);
      network_ = ddp_.get();
    }
    optimizer_ = std::make_unique<optim::SGD>(model_->named_parameters(),
                                              optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});
  }

  // Seconds of a step, when all ranks have done so many.
  double block(int64_t steps) {
    group_.barrier().wait();
    const auto start = Clock::now();
    for (int64_t i = 0; i < steps; ++i) {
      optimizer_->zero_grad();
      output_ = (*network_)(images_);
      cross_entropy(output_, labels_).backward();
      optimizer_->step();
    }
    group_.barrier().wait();
    return seconds_since(start) / static_cast<double>(steps);
  }

  double block_alone(int64_t steps) {
    const auto alone = ddp_->no_sync();
    return block(steps);
  }

  DistributedDataParallel* ddp() { return ddp_.get(); }
  const std::vector<Device>& devices() const { return devices_; }
  int64_t gradient_bytes() const { return bytes_of(model_->parameters()); }
  int64_t buffer_bytes() const { return bytes_of(model_->buffers()); }
  int64_t input_bytes() const { return bytes_of({images_}); }
  int64_t output_bytes() const { return bytes_of({output_}); }

 private:
  ProcessGroup& group_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<DistributedDataParallel> ddp_;
  std::unique_ptr<DataParallel> dp_;
  nn::Module* network_;
  std::vector<Device> devices_;
  std::unique_ptr<optim::SGD> optimizer_;
  Tensor images_, labels_, output_;
};

// The peaks of this process's devices, then those of the other ranks.
std::vector<int64_t> peak_memory(const Workload& work, bool shared_gradients, ProcessGroup& group) {
  std::vector<int64_t> own;
  for (const Device device : work.devices())
    own.push_back(memory_stats(device).peak_bytes + (shared_gradients ? work.gradient_bytes() : 0));
  const Tensor all = empty({group.size() * static_cast<int64_t>(own.size())}, {.dtype = DType::Int64});
  group.all_gather(all, tensor(own)).wait();
  return to_vector<int64_t>(all);
}

// DDP: each of n ranks reads (n - 1) / n of the gradients of others and writes as much to them. DP: parameters, buffers
// and inputs go out through the first device, outputs and gradients come in, gradients of outputs go out.
void count_bytes(const BenchDdpOptions& options, const Workload& work, nlohmann::json& row) {
  const int64_t n = options.ranks, gradients = work.gradient_bytes();
  int64_t moved = 0, busiest = 0;
  if (options.row.starts_with("ddp")) {
    moved = 2 * (n - 1) * gradients;
    busiest = 2 * moved / n;  // what leaves one rank arrives at another
  } else if (options.row == "dp") {
    moved = (n - 1) * (2 * gradients + work.buffer_bytes());
    moved += (work.input_bytes() + 2 * work.output_bytes()) * (n - 1) / n;
    busiest = moved;
  }
  row["moved_bytes"] = moved;
  row["busiest_bytes"] = busiest;
}

}  // namespace

nlohmann::json measure_row(const BenchDdpOptions& options, ProcessGroup& group) {
  Workload work(options, group);
  for (const Device device : work.devices()) reset_peak_memory(device);
  work.block(kWarmUp);
  const double estimate = work.block(kWarmUp);
  const auto at_least = [](double n, int64_t least) { return std::max(least, static_cast<int64_t>(n)); };
  const int64_t own_steps = at_least(kBlockSeconds / estimate, 1);
  const double pair_seconds = estimate * static_cast<double>(own_steps) * (work.ddp() ? 2 : 1);
  const Tensor agreed = tensor<int64_t>({own_steps, at_least(options.seconds / pair_seconds, 3)});
  group.broadcast(agreed, 0).wait();
  const int64_t steps = agreed.data<int64_t>()[0], pairs = agreed.data<int64_t>()[1];

  std::vector<double> with, without, kept;
  const ReductionTotals before = work.ddp() ? work.ddp()->totals() : ReductionTotals{};
  for (int64_t pair = 0; pair < pairs; ++pair) {
    with.push_back(work.block(steps));
    if (!work.ddp()) continue;
    without.push_back(work.block_alone(steps));
    kept.push_back(without.back() / with.back());
  }
  const double step = median(with);
  nlohmann::json row = {{"row", options.row},
                        {"ranks", options.row == "none" ? 1 : options.ranks},
                        {"images_per_second", static_cast<double>(options.batch) / step},
                        {"step_ms", step * 1e3},
                        {"steps", static_cast<int64_t>(with.size()) * steps},
                        {"memory_bytes", peak_memory(work, work.ddp() != nullptr, group)}};
  count_bytes(options, work, row);
  if (work.ddp()) {
    const ReductionTotals after = work.ddp()->totals();
    const Tensor exposed = full(
        {}, (after.exposed_seconds - before.exposed_seconds) / static_cast<double>(after.steps - before.steps) * 1e3,
        {.dtype = DType::Float64});
    group.all_reduce(exposed, ReduceOp::Average).wait();
    row["exposed_ms"] = exposed.item<double>();
    row["no_communication_ms"] = median(without) * 1e3;
    row["kept_of_no_communication"] = median(kept);
    for (const BucketLog& bucket : work.ddp()->log().buckets)
      row["buckets"].push_back({{"parameters", *bucket.parameters},
                                {"bytes", bucket.bytes},
                                {"ready_ms", bucket.ready * 1e3},
                                {"launched_ms", bucket.launched * 1e3},
                                {"completed_ms", bucket.completed * 1e3}});
  }
  return row;
}

}  // namespace ringgrad::program
