// Training for records: to a known accuracy from nothing, in as few seconds as possible. Each piece
// is a part of the library: Muon (nn/optim/muon.h), whitening filters and the identity (nn/init.h),
// alternating flips and mirrored borders (core/kernels/augmentation.h). This file combines them as
// the holders of the records did.
#pragma once

#include <functional>

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/models/speed_networks.h"

namespace ringgrad::models {

struct SpeedrunOptions {
  int64_t epochs = 0;  // 0: the recipe's own, 8 for Airbench and 1 for QuickNet
  uint64_t seed = 1;
  DType dtype = DType::Float32;  // dtype of images and activations
};

// images per step
inline constexpr int64_t kAirbenchBatch = 2000;
inline constexpr int64_t kQuickNetBatch = 128;

// Called after each step with the number of steps taken, their total, and the last step's mean
// loss. Return false to stop.
using AfterStep = std::function<bool(int64_t step, int64_t steps, double loss)>;

// airbench94_muon (github.com/KellerJordan/cifar10-airbench): Muon for the filters, SGD for the
// rest, label smoothing, alternating flips, and shifts by two pixels. After three epochs the
// whitening's bias is frozen and remains so. `normalize` may have mean and standard deviation only.
// Both functions return true if training was not stopped. They throw what DataLoader throws, and
// Error if there are fewer images than a batch.
bool speedrun(Airbench& network, const ImageDataset& train_set, const ImageTransform& normalize,
              const SpeedrunOptions& options, const AfterStep& after_step);

// Adam with one cycle of the learning rate and label smoothing. A single epoch ends after half of
// the images, which are enough for 99 % on MNIST. With several epochs (two: 99.4 %) each uses all
// images, shifted by up to two pixels.
bool speedrun(QuickNet& network, const ImageDataset& train_set, const ImageTransform& normalize,
              const SpeedrunOptions& options, const AfterStep& after_step);

// Returns the network's output in evaluation mode, without a graph, in float32: [N, C, H, W] → [N,
// classes].
Tensor answer(nn::Module& network, const Tensor& images);

// Returns the mean output for several views of each image. Airbench's views are the image, its
// mirror image, and both again shifted by one pixel up left and down right, which count half. Only
// the quarter of the images whose two best outputs are nearest get these views; the others keep
// their plain output (github.com/hiverge/cifar10-speedrun). QuickNet's views are the image and its
// shifts by one pixel up, down, left and right.
Tensor answer_by_views(Airbench& network, const Tensor& images);
Tensor answer_by_views(QuickNet& network, const Tensor& images);

}  // namespace ringgrad::models
