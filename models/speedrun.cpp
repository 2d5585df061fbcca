#include "ringgrad/models/speedrun.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/augmentation.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/nn/init.h"
#include "ringgrad/nn/optim/lr_scheduler.h"
#include "ringgrad/nn/optim/muon.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::models {
namespace {

DataLoader shuffled(const ImageDataset& images, const ImageTransform& transform, int64_t batch,
                    uint64_t seed) {
  CHECK(images.size() >= batch, "speedrun: ", images.size(),
        " images, expected at least a batch of ", batch);
  return DataLoader(
      images, std::make_shared<RandomSampler>(images.size(), seed),
      {.batch_size = batch, .num_workers = 1, .drop_last = true, .transform = transform});
}

// Falls linearly from the first rate to 0 in `steps` steps.
optim::LinearLR down_to_zero(int64_t steps) {
  return {.start_factor = 1, .end_factor = 0, .total_iters = steps};
}

// Returns [N, C, H, W] with row y and column x moved to y + down and x + right, mirrored at the
// border.
Tensor shifted(const Tensor& images, int down, int right) {
  const auto moved = [&](int dim, int shift) {
    const auto size = static_cast<int>(images.size(dim));
    std::vector<int64_t> from(size);
    for (int i = 0; i < size; ++i) from[i] = reflected(i - shift, size);
    return tensor(from, images.device());
  };
  return index_select(index_select(images, 2, moved(2, down)), 3, moved(3, right));
}

Tensor mirrored(const Tensor& images) {
  std::vector<int64_t> from(images.size(3));
  for (size_t x = 0; x < from.size(); ++x) from[x] = static_cast<int64_t>(from.size() - 1 - x);
  return index_select(images, 3, tensor(from, images.device()));
}

}  // namespace

bool speedrun(Airbench& network, const ImageDataset& train_set, const ImageTransform& normalize,
              const SpeedrunOptions& options, const AfterStep& after_step) {
  constexpr int64_t kBatch = kAirbenchBatch;
  constexpr int64_t kWhitenedImages = 5000;
  constexpr int64_t kWhiteningEpochs = 3;
  // Weight decay is divided by the rate, because a step subtracts lr · decay.
  constexpr double kBiasLr = 0.053;
  constexpr double kHeadLr = 0.67;
  constexpr double kWeightDecay = 2e-6 * kBatch;
  ImageTransform transform = normalize;
  transform.augment = {
      .crop_padding = 2, .reflect = true, .flip = true, .alternate = true, .seed = options.seed};
  DataLoader loader = shuffled(train_set, transform, kBatch, options.seed);

  std::vector<int64_t> first(std::min(kWhitenedImages, train_set.size()));
  for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int64_t>(i);
  nn::init::whitening_(network.whiten.weight, image_batches(train_set, normalize)(first, 0).data);

  std::vector<Tensor> filters;
  std::vector<Tensor> norms;
  for (const auto& [name, parameter] : network.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    if (parameter.dim() == 4) filters.push_back(parameter);
    if (name.find("norm") != std::string::npos) norms.push_back(parameter);
  }
  network.whiten.bias.requires_grad_();  // an earlier run may have frozen it
  const auto sgd = [](double lr) {
    return optim::SGDOptions{
        .lr = lr, .momentum = 0.85, .weight_decay = kWeightDecay / lr, .nesterov = true};
  };
  optim::SGD whitening(std::vector<Tensor>{network.whiten.bias}, sgd(kBiasLr));
  optim::SGD others(
      {{norms, sgd(kBiasLr)}, {std::vector<Tensor>{network.head.weight}, sgd(kHeadLr)}});
  optim::Muon muon(
      filters,
      {.lr = 0.24, .weight_decay = 0, .momentum = 0.6, .steps = 3, .scale_by_shape = false});

  const int64_t epochs = options.epochs > 0 ? options.epochs : 8;
  const int64_t steps = epochs * loader.size();
  const int64_t whitening_steps = std::min(epochs, kWhiteningEpochs) * loader.size();
  optim::LRScheduler whitening_rate(whitening, down_to_zero(whitening_steps));
  optim::LRScheduler other_rates(others, down_to_zero(steps));
  optim::LRScheduler muon_rate(muon, down_to_zero(steps));

  network.train();
  for (int64_t step = 0; step < steps;)
    for (Batch& batch : loader) {
      // Once the bias is trained, no gradient needs to reach it.
      network.whiten.bias.requires_grad_(step < whitening_steps);
      const Tensor answer = to(network(to(batch.data, options.dtype)), DType::Float32);
      const Tensor loss = cross_entropy(answer, batch.target,
                                        {.label_smoothing = 0.2, .reduction = Reduction::Sum});
      for (optim::Optimizer* optimizer :
           std::initializer_list<optim::Optimizer*>{&whitening, &others, &muon})
        optimizer->zero_grad();
      loss.backward();
      {  // filters keep their norms; Muon changes only directions
        const NoGradGuard no_grad;
        for (const Tensor& filter : filters)
          filter.mul_(std::sqrt(static_cast<double>(filter.size(0))) / norm(filter).item<double>());
      }
      if (step < whitening_steps) whitening.step();
      others.step();
      muon.step();
      whitening_rate.step();
      other_rates.step();
      muon_rate.step();
      if (!after_step(++step, steps, loss.item<double>() / kBatch)) return false;
    }
  return true;
}

bool speedrun(QuickNet& network, const ImageDataset& train_set, const ImageTransform& normalize,
              const SpeedrunOptions& options, const AfterStep& after_step) {
  const int64_t epochs = std::max<int64_t>(1, options.epochs);
  ImageTransform transform = normalize;
  if (epochs > 1) transform.augment = {.crop_padding = 2, .seed = options.seed};
  DataLoader loader = shuffled(train_set, transform, kQuickNetBatch, options.seed);
  // a cycle takes two steps
  const int64_t steps =
      epochs > 1 ? epochs * loader.size() : std::max<int64_t>(2, loader.size() / 2);
  optim::Adam adam(network.named_parameters(), {.betas = {0.7, 0.9}});
  optim::LRScheduler rate(adam, optim::OneCycleLR{.max_lr = 0.01, .total_steps = steps});

  network.train();
  for (int64_t step = 0; step < steps;)
    for (Batch& batch : loader) {
      const Tensor answer = to(network(to(batch.data, options.dtype)), DType::Float32);
      const Tensor loss = cross_entropy(answer, batch.target, {.label_smoothing = 0.1});
      adam.zero_grad();
      loss.backward();
      adam.step();
      rate.step();
      if (!after_step(++step, steps, loss.item<double>())) return false;
      if (step == steps) break;
    }
  return true;
}

Tensor answer(nn::Module& network, const Tensor& images) {
  const NoGradGuard no_grad;
  network.eval();
  return to(network(images), DType::Float32);
}

Tensor answer_by_views(Airbench& network, const Tensor& images) {
  const Tensor once = answer(network, images);
  const Tensor best = topk(once, 2).values;
  const Tensor lead = select(best, 1, 0) - select(best, 1, 1);
  const Tensor unsure = topk(lead, (lead.size(0) + 3) / 4, 0, /*largest=*/false).indices;
  const Tensor seen = index_select(images, 0, unsure);
  const Tensor first = index_select(once, 0, unsure);
  const auto both = [&](const Tensor& x) {
    return answer(network, x) + answer(network, mirrored(x));
  };
  const Tensor itself = first + answer(network, mirrored(seen));
  const Tensor mean = (2 * itself + both(shifted(seen, 1, 1)) + both(shifted(seen, -1, -1))) / 8;
  return index_add(once, 0, unsure, mean - first);
}

Tensor answer_by_views(QuickNet& network, const Tensor& images) {
  Tensor sum = answer(network, images);
  for (const auto& [down, right] : {std::pair{1, 0}, {-1, 0}, {0, 1}, {0, -1}})
    sum = sum + answer(network, shifted(images, down, right));
  return sum / 5;
}

}  // namespace ringgrad::models
