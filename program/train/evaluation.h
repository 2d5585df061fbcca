// Evaluates a network on a data set: each image exactly once, over any number of ranks.
#pragma once

#include <string>
#include <vector>

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/nn/module.h"
#include "ringgrad/program/run/summary.h"

namespace ringgrad::program {

inline constexpr size_t kWorst = 25;

struct Evaluation {
  // Mean over the images.
  double loss = 0;
  int64_t correct = 0;
  int64_t total = 0;
  // A signal asked some rank to stop: the numbers are of a part of the images.
  bool interrupted = false;
  // [classes · classes]; a row is the label, a column the answer.
  std::vector<int64_t> confusion;
  // The kWorst images with the highest loss, the worst first.
  std::vector<ImageResult> worst;
  double accuracy() const {
    return total ? static_cast<double>(correct) / static_cast<double>(total) : 0;
  }
};

// The whole data set in order, in evaluation mode, without a graph. With a group each rank takes
// its share, unpadded, and all return the sum. In shards each of those is a share, on whatever
// rank, so that the sum has the same bits.
Evaluation evaluate(nn::Module& model, const ImageDataset& dataset, const ImageTransform& transform,
                    Device device, ProcessGroup* group = nullptr, int shards = 0);

}  // namespace ringgrad::program
