#include "ringgrad/program/bench/ddp_workload.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/program/run/parallel_config.h"

namespace ringgrad::program {

int64_t bytes_of(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& x : tensors) bytes += static_cast<int64_t>(x.nbytes());
  return bytes;
}

Workload::Workload(const WorkloadOptions& options, const std::string& method, ProcessGroup& group)
    : group_(group) {
  manual_seed(0);
  const models::ModelOptions sizes = models::usual_images(options.model);
  const auto make = [=, model = options.model] { return models::make_model(model, sizes); };
  const Device device = group.device().is_cuda() ? group.device() : Device(options.device);
  const int64_t batch = options.batch / group.size();
  const int64_t first = group.rank() * batch;
  const auto images = [&](int64_t n) {
    return Shape{n, sizes.in_channels, sizes.image_size, sizes.image_size};
  };
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
    choose_buckets(options.bucket_mb, group, ddp);
    ddp_ = std::make_unique<DistributedDataParallel>(*model_, group, ddp);
    network_ = ddp_.get();
  }
  optimizer_ = std::make_unique<optim::SGD>(
      model_->named_parameters(),
      optim::SGDOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 5e-4});
}

// Returns when the devices have done the queued work, on all ranks.
void Workload::meet() {
  for (const Device device : devices_) synchronize(current_stream(device));
  group_.barrier().wait();
}

void Workload::step(const std::function<void(const char*)>& begins) {
  begins("zero_grad");
  optimizer_->zero_grad();
  begins("forward");
  output_ = (*network_)(images_);
  const Tensor loss = cross_entropy(output_, labels_);
  begins("backward");
  loss.backward();
  begins("optimizer");
  optimizer_->step();
}

double Workload::block(int64_t steps, const std::function<void()>& after_step) {
  meet();
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < steps; ++i) {
    step([](const char*) {});
    after_step();
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

Communication communication_of(const ReductionLog& log) {
  Communication seconds;
  double until = 0;
  for (const BucketLog& bucket : log.buckets) {
    const double from = std::max(bucket.launched, until);
    until = std::max(from, bucket.completed);
    seconds.all += until - from;
    seconds.hidden += std::max(0.0, std::min(until, log.computed) - from);
  }
  return seconds;
}

std::string first_and_last(const std::string& names) {
  const std::string listed = names.substr(0, names.find(" ("));
  const size_t space = listed.find(' ');
  return space == std::string::npos
             ? listed
             : listed.substr(0, space) + " … " + listed.substr(listed.rfind(' ') + 1);
}

nlohmann::json log_as_json(const ReductionLog& log) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const BucketLog& bucket : log.buckets)
    buckets.push_back({{"parameters", *bucket.parameters},
                       {"bytes", bucket.bytes},
                       {"ready_ms", bucket.ready * 1e3},
                       {"launched_ms", bucket.launched * 1e3},
                       {"completed_ms", bucket.completed * 1e3}});
  const Communication seconds = communication_of(log);
  return {{"step", log.step},
          {"backward_ms", log.computed * 1e3},
          {"averaged_ms", log.finished * 1e3},
          {"communication_ms", seconds.all * 1e3},
          {"hidden_ms", seconds.hidden * 1e3},
          {"buckets", std::move(buckets)}};
}

}  // namespace ringgrad::program
