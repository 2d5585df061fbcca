// The training loop: epochs of steps, evaluation, and a state that can be saved at any step and continued bit for bit.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "data/data_loader.h"
#include "data/image_dataset.h"
#include "models/program/recipe.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"

namespace ringgrad::program {

struct Evaluation {
  double loss = 0;  // mean over the images
  int64_t correct = 0, total = 0;
  std::vector<int64_t> confusion;  // [classes · classes], row: the label, column: the answer
  double accuracy() const { return total ? static_cast<double>(correct) / static_cast<double>(total) : 0; }
};

// The whole data set in order, in evaluation mode, without a graph.
Evaluation evaluate(nn::Module& model, const ImageDataset& dataset, const ImageTransform& transform, Device device);

// The data set's normalisation; and with the recipe's augmentation.
ImageTransform test_transform(const std::string& data);
ImageTransform train_transform(const Recipe& recipe, uint64_t seed);

class Training {
 public:
  Training(const Recipe& recipe, const ImageDataset& train_set, Device device, uint64_t seed, int workers);

  // Called after every step; returns true to stop there.
  using AfterStep = std::function<bool()>;
  // Trains from where it stands to the end of the epoch, or to where after_step stops it. Throws Error when the loss is
  // not a number, naming the step.
  void run_epoch(const AfterStep& after_step);

  // A file with everything that continuing needs; see nn/checkpoint.h. Atomic. Throws IoError.
  void save(const std::filesystem::path& path);
  // Throws DataError where the file is damaged or belongs to another model or recipe; nothing is changed then.
  void load(const std::filesystem::path& path);

  nn::Module& model() { return *model_; }
  int64_t step() const { return step_; }                      // steps done, over all epochs
  int64_t epoch() const { return step_ / steps_per_epoch_; }  // whole epochs done
  bool at_epoch_end() const { return step_ > 0 && step_ % steps_per_epoch_ == 0; }
  int64_t images() const { return images_; }  // in this epoch so far
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  double mean_loss() const;  // over the images of this epoch so far; waits for the device

 private:
  void train_step(const Batch& batch);

  Recipe recipe_;
  Device device_;
  int64_t steps_per_epoch_;
  optim::Schedule learning_rate_;
  std::shared_ptr<nn::Module> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  DataLoader loader_;
  int64_t step_ = 0;
  Tensor loss_sum_;  // [] on the device: the sum over this epoch's images
  int64_t images_ = 0;
};

}  // namespace ringgrad::program
