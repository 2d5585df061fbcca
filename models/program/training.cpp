#include "models/program/training.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "autograd/grad_mode.h"
#include "autograd/ops.h"
#include "core/check.h"
#include "core/factory.h"
#include "core/kernels.h"
#include "data/catalog.h"
#include "data/sampler.h"
#include "models/program/saved_model.h"
#include "nn/checkpoint.h"
#include "nn/optim/adam.h"
#include "nn/optim/clip_grad.h"
#include "nn/optim/sgd.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kEvaluationBatch = 500;
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

}  // namespace

Evaluation evaluate(nn::Module& model, const ImageDataset& dataset, const ImageTransform& transform, Device device) {
  NoGradGuard no_grad;
  model.eval();
  DataLoader loader(dataset, std::make_shared<SequentialSampler>(dataset.size()),
                    {.batch_size = kEvaluationBatch, .num_workers = 1, .transform = transform});
  const auto classes = static_cast<int64_t>(dataset.classes.size());
  Evaluation evaluation;
  evaluation.confusion.resize(classes * classes);
  for (const Batch& batch : loader) {
    const Tensor logits = model(to(batch.data, device));
    const auto target = to_vector<int64_t>(batch.target), answer = to_vector<int64_t>(argmax(logits, 1));
    evaluation.loss += cross_entropy(logits, to(batch.target, device), {.reduction = Reduction::Sum}).item<float>();
    for (int64_t i = 0; i < batch.size(); ++i) {
      evaluation.correct += target[i] == answer[i];
      ++evaluation.confusion[target[i] * classes + answer[i]];
    }
    evaluation.total += batch.size();
  }
  evaluation.loss /= static_cast<double>(std::max<int64_t>(evaluation.total, 1));
  return evaluation;
}

ImageTransform test_transform(const std::string& data) {
  const DatasetInfo& info = dataset_info(data);
  return {.mean = info.mean, .std = info.std};
}

ImageTransform train_transform(const Recipe& recipe, uint64_t seed) {
  ImageTransform transform = test_transform(recipe.data);
  transform.crop_padding = static_cast<int>(recipe.crop);
  transform.flip = recipe.flip;
  transform.cutout = static_cast<int>(recipe.cutout);
  transform.seed = seed;
  return transform;
}

Training::Training(const Recipe& recipe, const ImageDataset& train_set, Device device, uint64_t seed, int workers)
    : recipe_(recipe),
      device_(device),
      steps_per_epoch_((train_set.size() + recipe.batch - 1) / recipe.batch),
      learning_rate_(learning_rate(recipe, steps_per_epoch_)),
      loader_(train_set, std::make_shared<RandomSampler>(train_set.size(), seed),
              {.batch_size = recipe.batch, .num_workers = workers, .transform = train_transform(recipe, seed)}) {
  manual_seed(seed);
  model_ = make_model_for(recipe.model, recipe.data);
  model_->to(device);
  optimizer_ = make_optimizer(recipe, model_->named_parameters());
  loss_sum_ = zeros({}, {.dtype = DType::Float64, .device = device});
}

void Training::run_epoch(const AfterStep& after_step) {
  model_->train();
  if (at_epoch_end()) {
    fill_(loss_sum_, 0);
    images_ = 0;
  }
  for (const Batch& batch : loader_) {
    train_step(batch);
    CHECK(!(at_epoch_end() || step_ % kLossCheckSteps == 0) || std::isfinite(mean_loss()), "train: the loss is ",
          mean_loss(), " by step ", step_, " (epoch ", (step_ - 1) / steps_per_epoch_ + 1,
          "): the run diverged. A smaller --lr, --warmup or --clip-norm helps");
    if (after_step()) return;
  }
}

void Training::train_step(const Batch& batch) {
  optimizer_->set_lr(learning_rate_(recipe_.lr, step_));
  optimizer_->zero_grad();
  const Tensor loss = cross_entropy(model_->forward(to(batch.data, device_)), to(batch.target, device_),
                                    {.label_smoothing = recipe_.label_smoothing});
  loss.backward();
  if (recipe_.clip_norm > 0) optim::clip_grad_norm_(model_->parameters(), recipe_.clip_norm);
  optimizer_->step();

  kernels::axpby(loss_sum_, to(loss.detach(), DType::Float64), static_cast<double>(batch.size()), 1);
  images_ += batch.size();
  ++step_;
}

double Training::mean_loss() const { return loss_sum_.item<double>() / static_cast<double>(images_); }

void Training::save(const std::filesystem::path& path) {
  const SamplerState sampler = loader_.state();
  const nlohmann::json progress = {{"step", step_},
                                   {"images", images_},
                                   {"loss_sum", loss_sum_.item<double>()},
                                   {"sampler", {sampler.seed, sampler.epoch, sampler.position}},
                                   {"recipe", to_json(recipe_)}};
  nn::save_checkpoint(path, {.model = model_->state_dict(),
                             .optimizer = optimizer_->state_dict(),
                             .random = nn::random_state({device_}),
                             .progress = {{"progress", progress.dump()}}});
}

void Training::load(const std::filesystem::path& path) {
  const nn::Checkpoint checkpoint = nn::load_checkpoint(path);
  try {  // everything is read before anything is changed
    const auto progress = nlohmann::json::parse(checkpoint.progress.at("progress"));
    CHECK_AS(DataError, progress.at("recipe") == to_json(recipe_), "train: ", path.string(),
             " belongs to another recipe");
    model_->load_state_dict(checkpoint.model);
    optimizer_->load_state_dict(checkpoint.optimizer);
    nn::set_random_state(checkpoint.random);
    const auto& sampler = progress.at("sampler");
    loader_.load_state({sampler.at(0), sampler.at(1), sampler.at(2)});
    step_ = progress.at("step");
    images_ = progress.at("images");
    fill_(loss_sum_, progress.at("loss_sum"));
  } catch (const std::out_of_range&) {
    throw DataError(str("train: ", path.string(), " is no checkpoint of a training run"));
  } catch (const nlohmann::json::exception& error) {
    throw DataError(str("train: ", path.string(), " lacks what continuing needs: ", error.what()));
  }
}

}  // namespace ringgrad::program
