// ResidentBatches: a data set that lies on the device as bytes, from which the device makes each
// batch by itself.
//
// Images and labels are sent there once, the order of the samples once in each pass. Which batch is
// the current one is told by numbers that live on the device, too, so that making it needs nothing
// of the host: a captured training step begins with it. The batches are those that a DataLoader
// would make with this sampler and transform, bit for bit where both devices multiply and add in
// one rounding.
#pragma once

#include <memory>
#include <optional>

#include "ringgrad/data/batch_source.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/loading/pass.h"

namespace ringgrad {

class ResidentBatches final : public BatchSource {
 public:
  // How much memory the data set takes on the device.
  static size_t bytes(const ImageDataset& dataset);

  // `images`: the dtype and device of a batch's images. Throws what check_dataset_invariants and
  // check_transform throw, and OutOfMemoryError.
  ResidentBatches(const ImageDataset& dataset, std::shared_ptr<Sampler> sampler, Int64 batch_size,
                  const ImageTransform& transform, TensorOptions images);

  // Throws IndexError where the sampler names a sample that the data set does not have.
  void start_pass() override;
  void advance() override;
  std::span<const int64_t> indices() const override {
    return pass_ ? pass_->batch(batch_) : std::span<const int64_t>();
  }
  Batch current() override;
  bool on_device() const override { return true; }
  double waited_seconds() const override { return 0; }
  SamplerState state() const override;
  void load_state(const SamplerState& state) override;

 private:
  std::shared_ptr<Sampler> sampler_;
  int64_t batch_size_;
  TensorOptions options_;
  AugmentOptions augment_;
  Normalization normalization_;
  // uint8 [M, C, H, W], int64 [M]
  Tensor images_;
  Tensor labels_;
  Tensor order_;      // int64: the samples of the pass
  Tensor positions_;  // int64 [batch_size]: where in order_ the current batch's samples stand
  Tensor epoch_;      // int64 []
  std::optional<Pass> pass_;
  SamplerState untouched_;  // the sampler's, unless somebody has set it since the pass began
  int64_t batch_ = 0;       // the current one
};

}  // namespace ringgrad
