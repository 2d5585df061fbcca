#include "ringgrad/program/train/training_batches.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/data/batch_part_sampler.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/resident_batches.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/program/console/console.h"

namespace ringgrad::program {
namespace {

RowRange own_rows(const RunConfig& config, const ProcessGroup& group, int64_t batch) {
  const int shards = shards_of_step(config);
  return rows_of(shards_of_rank(group.rank(), group.size(), shards), shards, batch);
}

// The same global batches on any number of ranks: rank r has every n-th image of each, or those of
// its shards.
std::shared_ptr<Sampler> make_sampler(int64_t images, const RunConfig& config,
                                      const ProcessGroup* group) {
  const uint64_t seed = config.seed;
  if (config.parallel_config->shards > 0) {
    const auto part = [config, group](int64_t batch) {
      const RowRange rows = own_rows(config, *group, batch);
      return BatchPartSampler::Part{rows.begin, rows.end};
    };
    return std::make_shared<BatchPartSampler>(images, config.recipe.step_batch(), part, seed);
  }
  if (!group) return std::make_shared<RandomSampler>(images, seed);
  const DistributedSamplerOptions options{.seed = seed, .pad = false};
  return std::make_shared<DistributedSampler>(images, group->size(), group->rank(), options);
}

// Returns the images' normalisation with the recipe's augmentation.
ImageTransform train_transform(const DataFacts& facts, const Recipe& recipe, uint64_t seed) {
  ImageTransform transform = normalization_of(facts);
  transform.augment = {.crop_padding = static_cast<int>(recipe.crop),
                       .flip = recipe.flip,
                       .cutout = static_cast<int>(recipe.cutout),
                       .seed = seed};
  return transform;
}

// The batches of a loader's threads, on a device.
class LoaderBatches final : public BatchSource {
 public:
  LoaderBatches(MakeBatch make, std::shared_ptr<Sampler> sampler, const DataLoaderOptions& options,
                TensorOptions images)
      : loader_(std::move(make), std::move(sampler), options), images_(images) {}

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

int shards_of_step(const RunConfig& config) {
  return config.parallel_config->shards * static_cast<int>(config.recipe.accumulate);
}

int64_t own_batch(const RunConfig& config, const ProcessGroup* group) {
  if (config.parallel_config->shards > 0)
    return own_rows(config, *group, config.recipe.step_batch()).size();
  return config.recipe.batch / (group ? group->size() : 1);
}

std::unique_ptr<BatchSource> training_batches(const RunConfig& config, const ImageDataset& dataset,
                                              const ProcessGroup* group, int workers,
                                              const std::shared_ptr<LoadingLog>& log) {
  std::shared_ptr<Sampler> sampler = make_sampler(dataset.size(), config, group);
  const DataLoaderOptions options{
      .batch_size = own_batch(config, group),
      .num_workers = workers,
      .transform = train_transform(config.facts, config.recipe, config.seed)};
  const TensorOptions images{.dtype = dtype_named(config.recipe.dtype),
                             .device = Device(config.parallel_config->device)};
  if (images.device.is_cuda()) {
    const size_t bytes = ResidentBatches::bytes(dataset);
    const size_t available = device_backend(images.device.type).free_memory(images.device.index);
    if (bytes <= available / 2)
      return std::make_unique<ResidentBatches>(dataset, std::move(sampler), options.batch_size,
                                               options.transform, images);
    message("note    {} of images stay on the host: {} has {} free, of which they may take half",
            human_bytes(static_cast<int64_t>(bytes)), str(images.device),
            human_bytes(static_cast<int64_t>(available)));
  }
  MakeBatch make = LoadingLog::watched(image_batches(dataset, options.transform), log);
  return std::make_unique<LoaderBatches>(std::move(make), std::move(sampler), options, images);
}

}  // namespace ringgrad::program
