#include "ringgrad/models/program/train/training.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/data/sampler.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/saved_model.h"
#include "ringgrad/models/program/train/training_batches.h"
#include "ringgrad/models/program/train/training_progress.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/optim/optimizer.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kLossCheckSteps = 50;  // how often the loss is looked at: looking waits for the device

std::unique_ptr<optim::Optimizer> make_optimizer(const Recipe& recipe, const nn::NamedTensors& parameters) {
  if (recipe.optimizer == "sgd")
    return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = recipe.lr,
                                                                      .momentum = recipe.momentum,
                                                                      .weight_decay = recipe.weight_decay,
                                                                      .nesterov = recipe.nesterov});
  if (recipe.optimizer == "adam")
    return std::make_unique<optim::Adam>(parameters,
                                         optim::AdamOptions{.lr = recipe.lr, .weight_decay = recipe.weight_decay});
  return std::make_unique<optim::AdamW>(parameters,
                                        optim::AdamWOptions{.lr = recipe.lr, .weight_decay = recipe.weight_decay});
}

// The same global batches on any number of ranks: rank r has every n-th image of each.
std::shared_ptr<Sampler> make_sampler(int64_t images, uint64_t seed, const ProcessGroup* group) {
  if (!group) return std::make_shared<RandomSampler>(images, seed);
  const DistributedSamplerOptions options{.seed = seed, .pad = false};
  return std::make_shared<DistributedSampler>(images, group->size(), group->rank(), options);
}

}  // namespace

ImageTransform train_transform(const Recipe& recipe, uint64_t seed) {
  ImageTransform transform = test_transform(recipe.data);
  transform.augment = {.crop_padding = static_cast<int>(recipe.crop),
                       .flip = recipe.flip,
                       .cutout = static_cast<int>(recipe.cutout),
                       .seed = seed};
  return transform;
}

Training::Training(const Recipe& recipe, const ImageDataset& train_set, Device device, uint64_t seed, int workers,
                   const Division& division, const std::string& init)
    : recipe_(recipe),
      device_(device),
      group_(division.group),
      train_size_(train_set.size()),
      steps_per_epoch_((train_set.size() + recipe.batch - 1) / recipe.batch),
      learning_rate_(learning_rate(recipe, steps_per_epoch_)),
      own_batch_(recipe.batch / (group_ ? group_->size() : 1)),
      batches_(training_batches(
          train_set, make_sampler(train_set.size(), seed, group_),
          {.batch_size = own_batch_, .num_workers = workers, .transform = train_transform(recipe, seed)},
          {.dtype = dtype_named(recipe.dtype), .device = device})) {
  manual_seed(seed);
  model_ = make_model_for(recipe.model, recipe.data);
  if (!init.empty()) load_weights(*model_, init);
  model_->to(device);
  precision_.emplace(recipe, *model_, device);
  network_ = model_.get();
  if (group_) {
    if (division.sync_batch_norm) convert_sync_batchnorm(*model_, *group_);
    DistributedDataParallelOptions options;
    options.usual_samples = static_cast<double>(recipe.batch) / group_->size();
    options.check_finite = !precision_->may_overflow();
    ddp_ = std::make_unique<DistributedDataParallel>(*model_, *group_, options);
    network_ = ddp_.get();
    if (group_->rank() > 0) manual_seed(seed + static_cast<uint64_t>(group_->rank()));  // other neurons drop out
  } else if (division.replicas > 1) {
    std::vector<Device> devices;
    for (int i = 0; i < division.replicas; ++i) devices.emplace_back(device.type, device.index + i);
    const auto replica = [&] { return make_model_for(recipe.model, recipe.data); };
    dp_ = std::make_unique<DataParallel>(*model_, replica, devices);
    network_ = dp_.get();
  }
  optimizer_ = make_optimizer(recipe, precision_->trained_parameters());
  loss_sum_ = zeros({}, {.dtype = DType::Float64, .device = device});
  if (CapturedStep::possible(device) && batches_->on_device() && network_ == model_.get())
    captured_step_.emplace(device, [this] { compute(); });
}

// A rank whose part of the epoch has one batch less than others' takes part in the last step without images.
void Training::run_epoch(const AfterStep& after_step) {
  network_->train();
  if (at_epoch_end()) {
    fill_(loss_sum_, 0);
    own_images_ = images_ = 0;
    digest_ = {};
  }
  batches_->start_pass();
  for (int64_t left = steps_per_epoch_ - step_ % steps_per_epoch_; left > 0; --left) {
    train_step();
    if (at_epoch_end() || step_ % kLossCheckSteps == 0) check_loss();
    if (at_epoch_end())
      CHECK(used_images() == complete_digest(train_size_), "train: epoch ", epoch(), " did not use each of the ",
            train_size_, " images exactly once; the ranks' shares overlap or have gaps");
    if (after_step()) return;
    set_phase(Phase::Data);
    batches_->advance();
  }
}

// Note [Which steps are captured]
// Those of full batches, on CUDA, in one process with one device: nothing in them needs the host. The learning rate and
// the current batch's place are set in the device's memory before each; the short last batch of an epoch has other
// shapes, and is queued operation by operation. So are the steps of DataParallel, whose threads and devices change
// hands in the middle, and of DistributedDataParallel: at the end of backward its ranks tell each other on the host how
// many samples they had, and whether one of them is to stop.
void Training::train_step() {
  const auto samples = static_cast<int64_t>(batches_->indices().size());
  optimizer_->set_lr(learning_rate_(recipe_.lr, step_));
  if (ddp_) {
    ddp_->set_step(step_);
    ddp_->set_flag(program::interrupted() != 0);
  }
  if (captured_step_ && samples == own_batch_)
    (*captured_step_)();
  else
    compute();
  own_images_ += samples;
  digest_.add(batches_->indices());
  images_ += std::min(recipe_.batch, train_size_ - step_ % steps_per_epoch_ * recipe_.batch);
  ++step_;
}

// What a step does on the device. A rank that has no images left only takes part in the others' averaging.
void Training::compute() {
  precision_->zero_grad(*optimizer_);
  Tensor loss;
  const auto samples = static_cast<double>(batches_->indices().size());
  if (samples > 0) {
    const Batch batch = batches_->current();
    loss = cross_entropy(to((*network_)(batch.data), DType::Float32), batch.target,
                         {.label_smoothing = recipe_.label_smoothing});
    precision_->scale(loss).backward();
  } else {
    ddp_->shadow_step();
  }
  set_phase(Phase::Optimizer);
  precision_->step(*optimizer_, recipe_.clip_norm);
  if (loss) kernels::axpby(loss_sum_, to(loss.detach(), DType::Float64), samples, 1);
}

bool Training::interrupted() const { return ddp_ ? ddp_->flag() : program::interrupted() != 0; }

double Training::own_mean_loss() const {
  return own_images_ > 0 ? loss_sum_.item<double>() / static_cast<double>(own_images_) : 0;
}

// Sums of the ranks stay apart, so that a resumed run adds up the same numbers in the same order.
std::vector<double> Training::loss_sums() const {
  const std::vector<double> own{loss_sum_.item<double>()};
  return group_ ? all_gather_values(*group_, own) : own;
}

double Training::mean_loss() const {
  const auto sums = loss_sums();
  return std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(images_);
}

ShardDigest Training::used_images() const {
  const auto bits = [](uint64_t x) { return static_cast<int64_t>(x); };
  const std::vector<int64_t> own{bits(digest_.low), bits(digest_.high)};
  const auto all = group_ ? all_gather_values(*group_, own) : own;
  ShardDigest sum;
  for (size_t i = 0; i < all.size(); i += 2) sum += {static_cast<uint64_t>(all[i]), static_cast<uint64_t>(all[i + 1])};
  return sum;
}

void Training::check_loss() const {
  if (const double loss = own_mean_loss(); !std::isfinite(loss)) diverged(str("the loss is ", loss));
}

// The loss of the last step is older than what that step made of the parameters.
void Training::check_state() const {
  for (const auto& [name, tensor] : model_->state_dict())
    if (is_floating(tensor.dtype()) && !std::isfinite(sum(to(tensor, DType::Float64)).item<double>()))
      diverged(name + " is not finite");
}

void Training::diverged(const std::string& what) const {
  throw Error(str("train: ", what, " by step ", step_, " (epoch ", (step_ - 1) / steps_per_epoch_ + 1,
                  "): the run diverged. A lower --lr helps, or --clip-norm 1"));
}

void Training::save(const std::filesystem::path& path) {
  check_loss();
  const auto sums = loss_sums();
  const ShardDigest used = used_images();
  if (group_ && !group_->is_main_process()) return;
  check_state();
  set_phase(Phase::Checkpoint);
  const TrainingProgress progress{.step = step_,
                                  .images = images_,
                                  .loss_sums = sums,
                                  .used_images = used,
                                  .sampler = batches_->state(),
                                  .ready_order = ddp_ ? ddp_->ready_order() : std::vector<std::string>(),
                                  .recipe = recipe_};
  nn::save_checkpoint(path, {.model = model_->state_dict(),
                             .optimizer = stepping_state(),
                             .random = nn::random_state({device_}),
                             .progress = {{"progress", to_text(progress)}}});
}

// What the optimizer and the mixed precision keep.
nn::NamedTensors Training::stepping_state() {
  nn::NamedTensors state = optimizer_->state_dict();
  for (auto& entry : precision_->state_dict()) state.push_back(std::move(entry));
  return state;
}

void Training::load(const std::filesystem::path& path) {
  CHECK_AS(DataError, std::filesystem::exists(path), "train: there is no ", path.string(),
           ": the run stopped before its first checkpoint; start it anew");
  const nn::Checkpoint checkpoint = nn::load_checkpoint(path);
  const auto said = checkpoint.progress.find("progress");
  CHECK_AS(DataError, said != checkpoint.progress.end(), "train: ", path.string(),
           " is no checkpoint of a training run");
  TrainingProgress progress;
  try {  // everything is read and checked before anything is changed
    progress = progress_from(said->second, recipe_, train_size_);
    nn::check_by_name("model", model_->state_dict(), checkpoint.model, true);
    nn::check_by_name("optimizer", stepping_state(), checkpoint.optimizer, true);
    nn::check_random_state(checkpoint.random);
  } catch (const Error& error) {
    throw DataError(str("train: ", path.string(), ": ", error.what()));
  }

  model_->load_state_dict(checkpoint.model);
  optimizer_->load_state_dict(precision_->load(checkpoint.optimizer));
  if (ddp_) ddp_->set_ready_order(progress.ready_order);
  const size_t ranks = group_ ? group_->size() : 1, rank = group_ ? group_->rank() : 0;
  if (rank == 0) nn::set_random_state(checkpoint.random, device_);
  batches_->load_state(progress.sampler);
  step_ = progress.step;
  images_ = progress.images;
  digest_ = rank == 0 ? progress.used_images : ShardDigest();
  // As many ranks as before: each goes on with its own sum. Else the first one takes them all, and all the images.
  const std::vector<double>& sums = progress.loss_sums;
  const bool as_before = sums.size() == ranks;
  const double all = std::accumulate(sums.begin(), sums.end(), 0.0);
  own_images_ = as_before ? images_ / static_cast<int64_t>(ranks) : rank == 0 ? images_ : 0;
  fill_(loss_sum_, as_before ? sums[rank] : rank == 0 ? all : 0);
}

}  // namespace ringgrad::program
