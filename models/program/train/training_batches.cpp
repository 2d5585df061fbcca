#include "ringgrad/models/program/train/training_batches.h"

#include <optional>

#include <fmt/format.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/error.h"
#include "ringgrad/data/resident_batches.h"
#include "ringgrad/models/program/console/console.h"

namespace ringgrad::program {
namespace {

class LoaderBatches final : public BatchSource {
 public:
  LoaderBatches(const ImageDataset& dataset, std::shared_ptr<Sampler> sampler, const DataLoaderOptions& options,
                TensorOptions images)
      : loader_(dataset, std::move(sampler), options), images_(images) {}

  void start_pass() override {
    at_.reset();  // its threads first
    at_.emplace(loader_.begin());
  }
  void advance() override { ++*at_; }
  std::span<const int64_t> indices() const override { return (*at_)->indices; }
  Batch current() override {
    Batch batch = **at_;
    batch.data = to(to(batch.data, images_.device), images_.dtype);
    batch.target = to(batch.target, images_.device);
    return batch;
  }
  bool on_device() const override { return false; }
  double waited_seconds() const override { return loader_.waited_seconds(); }
  SamplerState state() const override { return loader_.state(); }
  void load_state(const SamplerState& state) override { loader_.load_state(state); }

 private:
  DataLoader loader_;
  TensorOptions images_;
  mutable std::optional<DataLoader::Iterator> at_;
};

}  // namespace

std::unique_ptr<BatchSource> training_batches(const ImageDataset& dataset, std::shared_ptr<Sampler> sampler,
                                              const DataLoaderOptions& options, TensorOptions images) {
  if (images.device.is_cuda()) {
    const size_t bytes = ResidentBatches::bytes(dataset);
    const size_t available = device_backend(images.device.type).free_memory(images.device.index);
    if (bytes <= available / 2)
      return std::make_unique<ResidentBatches>(dataset, std::move(sampler), options.batch_size, options.transform,
                                               images);
    message(fmt::format("note    {} of images stay on the host: {} has {} free, of which they may take half",
                        human_bytes(static_cast<int64_t>(bytes)), str(images.device),
                        human_bytes(static_cast<int64_t>(available))));
  }
  return std::make_unique<LoaderBatches>(dataset, std::move(sampler), options, images);
}

}  // namespace ringgrad::program
