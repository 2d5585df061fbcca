#include "ringgrad/models/program/bench/ddp_workload.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/safetensors.h"

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
  const models::ModelOptions sizes = models::usual_images(options.model);
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

double Workload::block(int64_t steps) {
  meet();
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < steps; ++i) step([](const char*) {});
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
  return space == std::string::npos ? listed : listed.substr(0, space) + " … " + listed.substr(listed.rfind(' ') + 1);
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

namespace {

constexpr double kBlockSeconds = 0.25;

// The peaks of this process's devices, then those of the other ranks.
std::vector<int64_t> peak_memory(const Workload& work, bool shared_gradients, ProcessGroup& group) {
  std::vector<int64_t> own;
  for (const Device device : work.devices())
    own.push_back(memory_stats(device).peak_bytes + (shared_gradients && device.is_cpu() ? work.gradient_bytes() : 0));
  return all_gather_values(group, own);
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

nlohmann::json measure_row(const BenchDdpOptions& options, ProcessGroup& group,
                           const std::filesystem::path& parameters_file) {
  Workload work(options, options.row, group);
  work.block(kComparedSteps / 2);
  const double estimate = work.block(kComparedSteps / 2);
  if (work.ddp()) work.ddp()->check_identical();
  if (group.is_main_process() && !parameters_file.empty()) nn::save_safetensors(parameters_file, work.parameters());
  for (const Device device : work.devices()) reset_peak_memory(device);
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
    row["no_communication_ms"] = median(without) * 1e3;
    row["kept_of_no_communication"] = median(kept);
    if (group.device().is_cuda()) return row;
    const Tensor exposed = full(
        {}, (after.exposed_seconds - before.exposed_seconds) / static_cast<double>(after.steps - before.steps) * 1e3,
        {.dtype = DType::Float64});
    group.all_reduce(exposed, ReduceOp::Average).wait();
    row["exposed_ms"] = exposed.item<double>();
    row["buckets"] = log_as_json(work.ddp()->log())["buckets"];
  }
  return row;
}

}  // namespace ringgrad::program
