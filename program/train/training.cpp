#include "ringgrad/program/train/training.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/distributed/ddp/parameter_check.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/saved_model.h"
#include "ringgrad/program/train/training_batches.h"

namespace ringgrad::program {
namespace {

// The steps between looks at the loss: looking waits for the device.
constexpr int64_t kLossCheckSteps = 50;

std::vector<int64_t> numbers_of(const ShardDigest& digest) {
  return {static_cast<int64_t>(digest.low), static_cast<int64_t>(digest.high)};
}

ShardDigest sum_of(const std::vector<int64_t>& numbers) {
  ShardDigest sum;
  for (size_t i = 0; i < numbers.size(); i += 2)
    sum += {static_cast<uint64_t>(numbers[i]), static_cast<uint64_t>(numbers[i + 1])};
  return sum;
}

}  // namespace

Training::Training(const RunConfig& config, const ImageDataset& train_set, ProcessGroup* group,
                   int workers, const std::string& init)
    : recipe_(config.recipe),
      facts_(config.facts),
      device_(config.parallel_config->device),
      group_(group),
      elastic_(!config.parallel_config->elastic.empty()),
      seed_(config.seed),
      train_size_(train_set.size()),
      data_hash_(hash_of_data(train_set)),
      steps_per_epoch_((train_size_ + recipe_.step_batch() - 1) / recipe_.step_batch()),
      learning_rate_(learning_rate(recipe_, steps_per_epoch_)),
      own_batch_(own_batch(config, group)),
      batches_(training_batches(config, train_set, group, workers, loading_)) {
  if (recipe_.ema > 0) averaged_ = make_model_for(recipe_.model, facts_);
  manual_seed(config.seed);
  model_ = make_model_for(recipe_.model, facts_);
  if (!init.empty()) load_weights(*model_, init);
  if (group_)
    check_same_lines(*group_, "train", "set of weights to begin with",
                     lines_of_values(model_->state_dict()),
                     "; is --init the same on all machines?");
  freeze();
  model_->to(device_);
  const bool divided = group_ && config.parallel_config->zero > 0;
  precision_.emplace(recipe_, *model_, device_, divided);
  wrap(config);
  optimizer_ = make_optimizer(recipe_, precision_->trained_parameters());
  if (divided)
    optimizer_->share(
        precision_->with_copies(virtual_ ? virtual_->step_share() : ddp_->step_share()));
  if (averaged_) {
    averaged_->to(device_);
    average_.emplace(model_->state_dict(),
                     optim::WeightAverageOptions{.decay = recipe_.ema, .warm_up = true});
    show_average();
  }
  loss_sum_ = zeros({}, {.dtype = DType::Float64, .device = device_});
  if (!device_.is_cuda()) return;
  why_not_captured_ = why_not_captured();
  if (ddp_)  // all ranks replay their steps, or none does
    for (const std::string& why : all_gather_texts(*group_, why_not_captured_))
      if (why_not_captured_.empty()) why_not_captured_ = why;
  if (why_not_captured_.empty()) captured_step_.emplace(device_, [this] { compute(own_batch_); });
}

// See Note [Which steps are captured]. This is what this rank knows by itself.
std::string Training::why_not_captured() const {
  if (dp_) return "--parallel dp";
  if (virtual_) return "--shards";
  if (recipe_.accumulate > 1) return "--accumulate";
  if (!batches_->on_device()) return "the images stay on the host";
  if (train_size_ < recipe_.step_batch()) return "no batch is full";
  return CapturedStep::possible(device_) ? "" : "RINGGRAD_CUDA_GRAPHS=0";
}

// --freeze backbone: all but the last layer has no gradients, so nothing of it travels between
// ranks either.
void Training::freeze() {
  if (recipe_.freeze == "none") return;
  const std::string head = head_of(*model_) + ".";
  for (const auto& [name, parameter] : model_->named_parameters())
    if (!name.starts_with(head)) Tensor(parameter).set_requires_grad(false);
}

int64_t Training::trained_parameters() const {
  int64_t elements = 0;
  for (const Tensor& parameter : model_->parameters())
    if (parameter.requires_grad()) elements += parameter.numel();
  return elements;
}

// Frozen layers keep what they have learnt. Their batch norms use their stored averages and do not
// change them.
void Training::set_modes() {
  network_->train();
  if (recipe_.freeze != "none") model_->eval();  // the last layer has no modes
}

// Chooses what a step calls: the model itself, or the wrapper that divides its work.
void Training::wrap(const RunConfig& config) {
  network_ = model_.get();
  const ParallelConfig& parallel_config = *config.parallel_config;
  if (!parallel_config.recompute.empty()) recomputation_.emplace(*model_);
  recompute_budget_ = recompute_budget(parallel_config);
  std::vector<Device> devices;
  for (int i = 0; i < parallel_config.replicas(); ++i)
    devices.emplace_back(device_.type, device_.index + i);
  const auto make_replica = [this] { return make_model_for(recipe_.model, facts_); };
  if (parallel_config.shards > 0) {
    virtual_ = std::make_unique<VirtualRanks>(
        *model_, *group_,
        VirtualRanksOptions{.shards = shards_of_step(config),
                            .seed = config.seed,
                            .sync_batch_norm = *parallel_config.sync_bn,
                            .zero = parallel_config.zero,
                            .check_finite = !precision_->may_overflow(),
                            .devices = devices,
                            .make_replica = make_replica});
  } else if (group_) {
    if (*parallel_config.sync_bn) convert_sync_batchnorm(*model_, *group_);
    DistributedDataParallelOptions options;
    options.weighting = Weighting::Given;
    options.usual_weight = static_cast<double>(recipe_.step_batch()) / group_->size();
    choose_buckets(parallel_config.bucket_mb, *group_, options);
    plans_buckets_ = parallel_config.bucket_mb == kPlannedBuckets;
    options.check_finite = !precision_->may_overflow();
    options.zero = parallel_config.zero;
    options.broadcast_buffers = recipe_.freeze == "none";  // frozen ones never change
    ddp_ = std::make_unique<DistributedDataParallel>(*model_, *group_, options);
    network_ = ddp_.get();
    // With another seed other neurons drop out.
    if (group_->rank() > 0) manual_seed(config.seed + static_cast<uint64_t>(group_->rank()));
  } else if (parallel_config.replicas() > 1) {
    dp_ = std::make_unique<DataParallel>(*model_, make_replica, devices);
    network_ = dp_.get();
  }
}

// A rank whose part of the epoch has one batch less than others' takes part in the last step
// without images.
void Training::run_epoch(const AfterStep& after_step) {
  set_modes();
  if (!elastic_) begin_sums();
  enter(Part::Data);
  batches_->start_pass();
  for (int64_t left = steps_per_epoch_ - step_ % steps_per_epoch_; left > 0; --left) {
    train_step();
    // In a replay the host sees no bucket.
    clock_.end_step(ddp_ && !captured_step_ ? &ddp_->log() : nullptr);
    if (on_part_) on_part_(Part::Rest);
    if (at_epoch_end() || step_ % kLossCheckSteps == 0) check_loss();
    if (at_epoch_end())
      CHECK(used_images() == complete_digest(train_size_), "train: epoch ", epoch(),
            " did not use each of the ", train_size_,
            " images exactly once; the ranks' shares overlap or have gaps");
    if (after_step()) break;
    enter(Part::Data);
    batches_->advance();
  }
  clock_.pause();
  show_average();
}

void Training::show_average() {
  if (average_) averaged_->load_state_dict(average_->state_dict());
}

// Starts the sums of losses and images again at the beginning of an epoch.
void Training::begin_sums() {
  if (!at_epoch_end()) return;
  fill_(loss_sum_, 0);
  own_images_ = images_ = 0;
  digest_ = {};
}

// Tells the launcher and the clock which part of a step begins.
void Training::enter(Part part) {
  if (part == Part::Data) set_phase(Phase::Data);
  if (part == Part::Forward) set_phase(Phase::Forward);
  if (part == Part::Optimizer) set_phase(Phase::Optimizer);
  clock_.enter(part);
  if (on_part_) on_part_(part);
}

// Note [Which steps are captured]
// On CUDA, steps of full batches are captured, because nothing in them needs the host. The learning
// rate and the current batch's place are set in the device's memory before each replay. The short
// last batch of an epoch has other shapes, so it is queued operation by operation. So are steps of
// DataParallel and of shards, whose threads and devices change hands in the middle, and of several
// batches, between which the host turns to the next one.
//
// Steps of DistributedDataParallel are captured over NCCL, whose all-reduces become part of the
// graph. What its ranks otherwise agree on in each step, on the host, is fixed for full batches:
// how many samples each of them has, and that none skips the step. If one rank's batch is not full,
// all ranks queue their operations. The ranks compare the rest about once a second: whether one of
// them must stop, and whether gradients are finite (Note [Recorded steps] in reducer.h).
void Training::train_step() {
  const int64_t all_images =
      std::min(recipe_.step_batch(), train_size_ - step_ % steps_per_epoch_ * recipe_.step_batch());
  const int64_t images = own_images_of_step();
  optimizer_->set_lr(learning_rate_(recipe_.lr, step_));
  if (ddp_) {
    ddp_->set_step(step_);
    ddp_->set_flag(program::interrupted() != 0);
    ddp_->set_weight(static_cast<double>(images));
  }
  if (!elastic_) count_batch();
  enter(Part::Forward);  // a captured step says no more
  if (virtual_)
    train_shards(all_images);
  else if (captured_step_ && all_images == recipe_.step_batch())
    (*captured_step_)();
  else
    compute(images);
  if (average_) average_->update(model_->state_dict());
  images_ += all_images;
  ++step_;
  if (const int64_t budget = std::exchange(recompute_budget_, 0))
    recomputation_->fit(budget, device_);
}

// Takes the step of a global batch of so many images. This rank has the current batch of it, if
// any. The loss is that of all images, on all ranks.
void Training::train_shards(int64_t images) {
  virtual_->set_step(step_);
  virtual_->set_flag(program::interrupted() != 0);
  const Batch batch = batches_->indices().empty() ? Batch() : batches_->current();
  Tensor digests;
  Work gathered;
  if (elastic_) {  // state that only one rank has would be lost with it
    ShardDigest used;
    used.add(batches_->indices());
    digests = empty({2 * static_cast<int64_t>(group_->size())}, {.dtype = DType::Int64});
    gathered = group_->all_gather(digests, tensor(numbers_of(used)), {.async = true});
  }
  const double loss = virtual_->step(
      images, [&](const VirtualRanks::Shard& shard) { return add_gradient_of(batch, shard); });
  // From here on nothing throws, so the step counts. The digests came before the results that the
  // step has waited for.
  gathered.wait();
  if (elastic_) {
    begin_sums();
    digest_ += sum_of(to_vector<int64_t>(digests));
  }
  const auto count = static_cast<double>(images);
  kernels::affine(loss_sum_, loss_sum_, 1, loss * count);
  own_images_ = images_ + images;
  set_phase(Phase::Optimizer);
  precision_->step(*optimizer_, recipe_.clip_norm);
}

Tensor Training::add_gradient_of(const Batch& batch, const VirtualRanks::Shard& shard) {
  const auto rows = [&](const Tensor& x) {
    return to(slice(x, 0, shard.begin, shard.end), shard.device);
  };
  const Tensor loss =
      cross_entropy(to((*shard.module)(rows(batch.data)), DType::Float32), rows(batch.target),
                    {.label_smoothing = recipe_.label_smoothing, .reduction = Reduction::Sum});
  precision_->scale(loss).backward();
  return loss;
}

// The last step of an epoch may be short: a rank may have fewer batches than another, and its last
// batch may have fewer images.
int64_t Training::own_images_of_step() const {
  const int64_t ranks = group_ ? group_->size() : 1;
  const int64_t rank = group_ ? group_->rank() : 0;
  const int64_t in_epoch = (train_size_ - rank + ranks - 1) / ranks;
  const int64_t most = own_batch_ * recipe_.accumulate;
  return std::clamp<int64_t>(in_epoch - step_ % steps_per_epoch_ * most, 0, most);
}

void Training::count_batch() {
  own_images_ += static_cast<int64_t>(batches_->indices().size());
  digest_.add(batches_->indices());
}

// Computes a step on the device, for so many images of this rank, in one batch or several. A rank
// that has no images left only takes part in the others' averaging.
void Training::compute(int64_t images) {
  precision_->zero_grad(*optimizer_);
  if (images == 0) {
    enter(Part::Backward);
    ddp_->shadow_step();
  }
  for (int64_t left = images; left > 0;) {
    left -= static_cast<int64_t>(batches_->indices().size());
    std::optional<DistributedDataParallel::NoSync> more_follows;
    if (ddp_ && left > 0) more_follows.emplace(*ddp_);
    add_gradient(images);
    if (left == 0) break;
    enter(Part::Data);
    batches_->advance();
    count_batch();
  }
  enter(Part::Optimizer);
  precision_->step(*optimizer_, recipe_.clip_norm);
}

// Adds the current batch's gradient to that of the mean loss over all images of the step.
void Training::add_gradient(int64_t images) {
  enter(Part::Forward);
  const Batch batch = batches_->current();
  const Tensor loss = cross_entropy(to((*network_)(batch.data), DType::Float32), batch.target,
                                    {.label_smoothing = recipe_.label_smoothing});
  const auto part = static_cast<double>(batch.size());
  enter(Part::Backward);
  precision_->scale(batch.size() == images ? loss : loss * (part / static_cast<double>(images)))
      .backward();
  kernels::axpby(loss_sum_, to(loss.detach(), DType::Float64), part, 1);
}

bool Training::interrupted() const {
  return ddp_ ? ddp_->flag() : virtual_ ? virtual_->flag() : program::interrupted() != 0;
}

uint64_t Training::check_identical() const {
  if (group_ && average_)
    check_same_lines(*group_, "train", "average of weights",
                     lines_of_values(average_->state_dict()));
  return ddp_ ? ddp_->check_identical() : virtual_ ? virtual_->check_identical() : 0;
}

double Training::waited_for_ranks() const {
  return ddp_ ? ddp_->totals().exposed_seconds : virtual_ ? virtual_->waited_seconds() : 0;
}

double Training::own_mean_loss() const {
  return own_images_ > 0 ? loss_sum_.item<double>() / static_cast<double>(own_images_) : 0;
}

// Sums of the ranks stay apart, so that a resumed run adds up the same numbers in the same order.
std::vector<double> Training::loss_sums() const {
  const std::vector<double> own{loss_sum_.item<double>()};
  return group_ && !virtual_ ? all_gather_values(*group_, own) : own;
}

double Training::mean_loss() const {
  const auto sums = loss_sums();
  return std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(images_);
}

ShardDigest Training::used_images() const {
  return group_ && !elastic_ ? sum_of(all_gather_values(*group_, numbers_of(digest_))) : digest_;
}

void Training::check_loss() const {
  const double loss = own_mean_loss();
  if (std::isfinite(loss)) return;
  // A collective that was cut short leaves any numbers.
  if (const auto failure = group_ ? group_->failure() : std::nullopt) throw_failure(*failure);
  if (std::isnan(loss)) diverged("the loss is not a number");  // whose sign would say nothing
  diverged("the loss is infinite");
}

void Training::diverged(const std::string& what) const {
  throw Error(fmt::format(
      "train: {} by step {} (epoch {}): the run diverged. A lower --lr helps, or --clip-norm 1",
      what, step_, (step_ - 1) / steps_per_epoch_ + 1));
}

}  // namespace ringgrad::program
