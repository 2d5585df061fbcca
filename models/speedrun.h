// Training for records: to a known accuracy from nothing, in as few seconds as we know how. Each
// piece is a part of the library: Muon (nn/optim/muon.h), whitening filters and the identity
// (nn/init.h), alternating flips and mirrored borders (core/kernels/augmentation.h); here they are
// put together as those did who hold the records.
#pragma once

#include <functional>

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/models/speed_networks.h"

namespace ringgrad::models {

struct SpeedrunOptions {
  int64_t epochs = 0;  // 0: the recipe's own, 8 for Airbench and 1 for QuickNet
  uint64_t seed = 1;
  DType dtype = DType::Float32;  // of images and activations
};

// images of a step
inline constexpr int64_t kAirbenchBatch = 2000;
inline constexpr int64_t kQuickNetBatch = 128;

// Called after each step: how many were taken, of how many, and the last one's mean loss. False:
// stop.
using AfterStep = std::function<bool(int64_t step, int64_t steps, double loss)>;

// airbench94_muon (github.com/KellerJordan/cifar10-airbench): Muon for the filters, SGD for the
// rest, label smoothing, flips in turn, shifts by two pixels; after three epochs the whitening's
// bias is frozen, and stays so for who trains on. `normalize` has mean and standard deviation only.
// Return whether training came to its end. Throw what DataLoader throws, and Error where there are
// fewer images than a batch.
bool speedrun(Airbench& network, const ImageDataset& train_set, const ImageTransform& normalize,
              const SpeedrunOptions& options, const AfterStep& after_step);

// Adam with one cycle of the learning rate and label smoothing. A single epoch ends after half of
// the images, which are enough for 99 % of MNIST; of several (two: 99.4 %) each sees all, shifted
// by up to two pixels.
bool speedrun(QuickNet& network, const ImageDataset& train_set, const ImageTransform& normalize,
              const SpeedrunOptions& options, const AfterStep& after_step);

// In evaluation mode and without a graph, in float32: [N, C, H, W] → [N, classes].
Tensor answer(nn::Module& network, const Tensor& images);

// The mean answer to several views of an image. For Airbench, and only the quarter of those given
// whose two best answers are nearest (github.com/hiverge/cifar10-speedrun): itself, its mirror
// image, and both again shifted by one pixel up left and down right, which count half. For
// QuickNet: itself and shifted by one pixel up, down, left and right.
Tensor answer_by_views(Airbench& network, const Tensor& images);
Tensor answer_by_views(QuickNet& network, const Tensor& images);

}  // namespace ringgrad::models
