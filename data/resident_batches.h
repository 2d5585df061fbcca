// ResidentBatches: a data set that lies on the device as bytes. The device makes each batch by
// itself.
//
// Images and labels are sent there once, and the order of the samples once in each pass. The number
// of the current batch lives on the device, too. So making the batch does not need the host, and a
// captured training step can begin with it. The batches are those that a DataLoader would make with
// this sampler and transform. They are equal bit for bit if both devices multiply and add with one
// rounding.
#pragma once

#include <memory>
#include <optional>

#include "ringgrad/data/batch_source.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/loading/pass.h"

namespace ringgrad {

class ResidentBatches final : public BatchSource {
 public:
  // Returns the memory that the data set takes on the device.
  static size_t bytes(const ImageDataset& dataset);

  // `images` gives the dtype and device of a batch's images. Throws what check_dataset_invariants
  // and check_transform throw, and OutOfMemoryError.
  ResidentBatches(const ImageDataset& dataset, std::shared_ptr<Sampler> sampler, Int64 batch_size,
                  const ImageTransform& transform, TensorOptions images);

  // Throws IndexError if the sampler names a sample that does not exist.
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
  // uint8 [M, C, H, W] and int64 [M]
  Tensor images_;
  Tensor labels_;
  Tensor order_;      // int64: the samples of the pass
  Tensor positions_;  // int64 [batch_size]: positions in order_ of the current batch
  Tensor epoch_;      // int64 []
  std::optional<Pass> pass_;
  SamplerState untouched_;  // the sampler's state, unless it has been set since the pass began
  int64_t batch_ = 0;       // the number of the current batch
};

}  // namespace ringgrad
