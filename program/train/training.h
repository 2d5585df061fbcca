// The training loop: epochs of steps, on one rank or several. Its state can be saved at any step
// and continued bit for bit. It can also continue on another number of ranks, up to rounding.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "ringgrad/core/device/captured_step.h"
#include "ringgrad/data/batch_source.h"
#include "ringgrad/data/shard_digest.h"
#include "ringgrad/distributed/data_parallel.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/hand_over.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/optim/weight_average.h"
#include "ringgrad/nn/recompute.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/train/evaluation.h"
#include "ringgrad/program/train/loading_log.h"
#include "ringgrad/program/train/mixed_precision.h"
#include "ringgrad/program/train/step_clock.h"

namespace ringgrad::program {

class Training {
 public:
  // config.parallel_config must be settled. It decides whether a step runs on one device, on
  // replicas of the model, or on the ranks of `group`, which must outlive the training. On several
  // ranks everything below is collective, and each rank takes its part of every global batch. So
  // recipe.batch must be a multiple of the ranks. Shards need a group, if only of one rank, and
  // lift that rule. `workers` is the number of threads that prepare batches. `init` names the
  // initial weights (see load_weights); they are random if it is empty.
  Training(const RunConfig& config, const ImageDataset& train_set, ProcessGroup* group, int workers,
           const std::string& init = "");

  // Called after every step; returns true to stop there.
  using AfterStep = std::function<bool()>;
  // Trains to the end of the epoch, or to the step at which after_step stops it. Throws Error,
  // which names the step, when the loss is not a number. Throws Error when the epoch has not used
  // every image exactly once, on all ranks together.
  void run_epoch(const AfterStep& after_step);

  // The first rank writes a file with everything that continuing needs; see nn/checkpoint.h.
  // Atomic. Throws IoError. Throws Error and writes nothing if the loss or the model is not finite.
  // Throws OutOfStepError, which names tensor and rank, and writes nothing if the ranks' models are
  // not the same bit for bit.
  void save(const std::filesystem::path& path);
  // Throws DataError, and changes nothing, if the file is missing or damaged, or belongs to another
  // model or recipe.
  void load(const std::filesystem::path& path);

  // For elastic jobs: returns the whole state of training after step() steps, also if a step has
  // been broken off; every rank has it (hand_over.h). Not collective. The tensors are the ones that
  // training changes.
  TrainingState state();
  // Returns lines about the state for ranks to compare: the step, and hashes of everything that
  // continues.
  std::vector<std::string> lines_of_state();
  // The same is to be true of this training, which has the same model and recipe. Throws as load().
  void load(const TrainingState& state);

  nn::Module& model() { return *model_; }
  // Returns the model to evaluate and keep. With recipe.ema it is another one, in float32, whose
  // weights and running statistics are moving averages, as of the last run_epoch() or load().
  nn::Module& evaluated_model() { return averaged_ ? *averaged_ : *model_; }
  // Returns the number of elements without those that the recipe freezes.
  int64_t trained_parameters() const;
  // Returns the number of steps done, over all epochs.
  int64_t step() const { return step_; }
  // Returns the number of whole epochs done.
  int64_t epoch() const { return step_ / steps_per_epoch_; }
  bool at_epoch_end() const { return step_ > 0 && step_ % steps_per_epoch_ == 0; }
  // Returns the number of images in this epoch so far, on all ranks.
  int64_t images() const { return images_; }
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t planned_steps() const { return steps_per_epoch_ * recipe_.epochs; }
  // Seconds for which this rank has waited, in all epochs of this process.
  double waited_for_data() const { return batches_->waited_seconds(); }
  // The mean over the images of this epoch so far; waits for the device.
  double mean_loss() const;
  // Returns the mean over this rank's images alone; not collective.
  double own_mean_loss() const;
  // The number of images whose mean that is.
  int64_t own_images() const { return own_images_; }
  // A signal has asked some rank to stop. All ranks hear of it after the same step.
  bool interrupted() const;

  // Batches are made by the device, of a data set that lies there.
  bool data_on_device() const { return batches_->on_device(); }
  // Steps of full batches are recorded as a graph and replayed. See Note [Which steps are captured]
  // in training.cpp.
  bool step_captured() const { return captured_step_.has_value(); }
  // Returns "" where they are captured, and on the CPU; else what prevents it, such as an option.
  const std::string& step_not_captured() const { return why_not_captured_; }

  // Collective: a hash of the model's parameters and buffers; 0 without a group. Throws
  // OutOfStepError, naming tensor and rank, unless all ranks have the same.
  uint64_t check_identical() const;
  double waited_for_ranks() const;  // seconds, this rank, in all epochs of this process
  // Returns the wrapper, which knows about communication; nullptr without a group.
  DistributedDataParallel* distributed() const { return ddp_.get(); }
  const StepClock& clock() const { return clock_; }  // the parts of this rank's time
  LoadingLog& loading() { return *loading_; }        // and its loader threads'
  double lr() const { return optimizer_->lr(); }     // the rate of the last step

  // Sets an observer, which is called on this thread whenever a part of a step begins; an empty one
  // removes it.
  void set_on_part(std::function<void(Part)> look) { on_part_ = std::move(look); }
  // Returns true if steps run layer by layer on this thread, so that an observer sees them.
  bool can_be_watched() const { return !dp_ && !virtual_ && !captured_step_; }

 private:
  void freeze();
  void set_modes();
  void wrap(const RunConfig& config);
  std::string why_not_captured() const;
  void enter(Part part);
  void train_step();
  void train_shards(int64_t images);
  Tensor add_gradient_of(const Batch& batch, const VirtualRanks::Shard& shard);
  int64_t own_images_of_step() const;
  void begin_sums();
  void count_batch();
  void show_average();
  void compute(int64_t images);
  void add_gradient(int64_t images);
  std::vector<double> loss_sums() const;
  ShardDigest used_images() const;
  nn::NamedTensors stepping_state();
  nn::Checkpoint checkpoint(const std::vector<double>& sums, const ShardDigest& used,
                            std::vector<int64_t> generators, nn::NamedTensors stepping);
  void load(const nn::Checkpoint& checkpoint, const std::string& called);
  void check_loss() const;   // checks this rank's loss; waits for the device
  void check_state() const;  // checks the model's state
  [[noreturn]] void diverged(const std::string& what) const;

  Recipe recipe_;
  DataFacts facts_;
  Device device_;
  ProcessGroup* group_;
  const bool elastic_;
  const uint64_t seed_;
  int64_t train_size_;
  const std::string data_hash_;
  int64_t steps_per_epoch_;
  optim::Schedule learning_rate_;
  std::shared_ptr<nn::Module> model_;
  std::optional<nn::Recomputation> recomputation_;
  int64_t recompute_budget_;  // valid until the first step has been taken; 0: none
  std::unique_ptr<DistributedDataParallel> ddp_;
  bool plans_buckets_ = false;  // a checkpoint keeps the plan
  std::unique_ptr<DataParallel> dp_;
  std::unique_ptr<VirtualRanks> virtual_;
  nn::Module* network_;  // the model, or a wrapper
  std::optional<MixedPrecision> precision_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<optim::WeightAverage> average_;  // if the recipe has it
  std::shared_ptr<nn::Module> averaged_;         // shows it
  int64_t own_batch_;                            // this rank's part of the batch
  std::shared_ptr<LoadingLog> loading_ = std::make_shared<LoadingLog>();
  std::unique_ptr<BatchSource> batches_;
  std::string why_not_captured_;
  std::optional<CapturedStep> captured_step_;
  StepClock clock_;
  std::function<void(Part)> on_part_;
  int64_t step_ = 0;
  // [] on the device: the sum over this rank's images of this epoch; with shards, over all ranks'
  // images.
  Tensor loss_sum_;
  int64_t own_images_ = 0;  // how many those are
  int64_t images_ = 0;
  ShardDigest digest_;  // this rank's images of this epoch; in an elastic job those of all ranks
};

}  // namespace ringgrad::program
