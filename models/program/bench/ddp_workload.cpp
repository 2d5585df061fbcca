#include "ringgrad/models/program/bench/ddp_workload.h"

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/models/registry.h"

namespace ringgrad::program {
namespace {

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += x.numel() * static_cast<int64_t>(itemsize(x.dtype()));
  return bytes;
}

}  // namespace

Workload::Workload(const WorkloadOptions& options, const std::string& method, ProcessGroup& group) : group_(group) {
  manual_seed(0);
  const bool mnist = options.model == "cnn" || options.model == "lenet";
  const models::ModelOptions sizes{.in_channels = mnist ? 1 : 3, .image_size = mnist ? 28 : 32};
  const auto make = [=, model = options.model] { return models::make_model(model, sizes); };
  const Device device = group.device().is_cuda() ? group.device() : Device(options.device);
  const int64_t batch = options.batch / group.size(), first = group.rank() * batch;
  const auto images = [&](int64_t n) { return Shape{n, sizes.in_channels, sizes.image_size, sizes.image_size}; };
  const Tensor whole_batch = empty(images(options.batch));
  normal_(whole_batch, 0, 1);
  images_ = empty(images(batch), {.device = device});
  copy_(images_, slice(whole_batch, 0, first, first + batch));
  std::vector<int64_t> labels(batch);
  for (int64_t i = 0; i < batch; ++i) labels[i] = (first + i) * 7 % sizes.num_classes;
  labels_ = tensor(labels, device);

  model_ = make();
  model_->to(device);
  network_ = model_.get();
  if (method == "dp") {
    for (int i = 0; i < options.ranks; ++i) devices_.emplace_back(device.type, device.index + i);
    dp_ = std::make_unique<DataParallel>(*model_, make, devices_);
    network_ = dp_.get();
  } else {
    devices_ = {device};
  }
  if (method.starts_with("ddp")) {
    DistributedDataParallelOptions ddp;
    ddp.overlap = method != "ddp_no_overlap";
    ddp.exact_times = method == "ddp_traced";
    if (options.bucket_mb > 0)
      ddp.caps.bytes = ddp.caps.first_bytes = std::max<int64_t>(1, static_cast<int64_t>(options.bucket_mb * 1e6));
    ddp_ = std::make_unique<DistributedDataParallel>(*model_, group, ddp);
    network_ = ddp_.get();
  }
  optimizer_ = std::make_unique<optim::SGD>(model_->named_parameters(),
                                            optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});
}

// The devices have done what was queued, on all ranks.
void Workload::meet() {
  for (const Device device : devices_) synchronize(current_stream(device));
  group_.barrier().wait();
}

double Workload::block(int64_t steps) {
  meet();
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < steps; ++i) {
    optimizer_->zero_grad();
    output_ = (*network_)(images_);
    cross_entropy(output_, labels_).backward();
    optimizer_->step();
  }
  meet();
  return seconds_since(start) / static_cast<double>(steps);
}

double Workload::block_alone(int64_t steps) {
  const auto alone = ddp_->no_sync();
  return block(steps);
}

int64_t Workload::gradient_bytes() const { return bytes_of(model_->parameters()); }
int64_t Workload::buffer_bytes() const { return bytes_of(model_->buffers()); }
int64_t Workload::input_bytes() const { return bytes_of({images_}); }
int64_t Workload::output_bytes() const { return bytes_of({output_}); }

nlohmann::json buckets_as_json(const ReductionLog& log) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const BucketLog& bucket : log.buckets)
    buckets.push_back({{"parameters", *bucket.parameters},
                       {"bytes", bucket.bytes},
                       {"ready_ms", bucket.ready * 1e3},
                       {"launched_ms", bucket.launched * 1e3},
                       {"completed_ms", bucket.completed * 1e3}});
  return buckets;
}

}  // namespace ringgrad::program
