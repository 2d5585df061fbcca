#include "data/data_loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/check.h"
#include "core/factory.h"
#include "core/op_scope.h"

namespace ringgrad {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

MakeBatch image_batches(ImageDataset dataset, ImageTransform transform) {
  check_dataset_invariants(dataset);
  check_transform(transform, dataset.images.size(1));
  return [dataset = std::move(dataset), transform = std::move(transform)](std::span<const int64_t> indices,
                                                                          int64_t epoch) {
    OpScope scope("data_loader");
    const Shape& all = dataset.images.shape();
    const auto channels = static_cast<int>(all[1]), height = static_cast<int>(all[2]), width = static_cast<int>(all[3]);
    const int64_t pixels = all[1] * all[2] * all[3], count = static_cast<int64_t>(indices.size());
    Batch batch{.data = empty({count, all[1], all[2], all[3]}), .target = empty({count}, {.dtype = DType::Int64})};
    float* out = batch.data.data<float>();
    for (int64_t i = 0; i < count; ++i, out += pixels) {
      const int64_t index = indices[i];
      CHECK_AS(IndexError, index >= 0 && index < dataset.size(), "data_loader: the sampler gave index ", index,
               ", expected 0 to ", dataset.size() - 1);
      const Augmentation augmentation = draw_augmentation(transform, height, width, epoch, index);
      apply_transform(transform, augmentation, dataset.images.data<uint8_t>() + index * pixels, channels, height, width,
                      out);
      batch.target.data<int64_t>()[i] = dataset.labels.data<int64_t>()[index];
    }
    return batch;
  };
}

DataLoader::DataLoader(MakeBatch make_batch, std::shared_ptr<Sampler> sampler, DataLoaderOptions options)
    : make_batch_(std::move(make_batch)), sampler_(std::move(sampler)), options_(std::move(options)) {
  CHECK(make_batch_ && sampler_, "data_loader: needs a source of batches and a sampler");
  CHECK(options_.batch_size >= 1, "data_loader: batch_size is ", options_.batch_size, ", expected at least 1");
  CHECK(options_.num_workers >= 0 && options_.num_workers <= 256, "data_loader: num_workers is ", options_.num_workers,
        ", expected 0 to 256");
  CHECK(options_.prefetch >= 1 && options_.prefetch <= 4096, "data_loader: prefetch is ", options_.prefetch,
        ", expected 1 to 4096");
  state_ = sampler_->state();
}

DataLoader::DataLoader(ImageDataset dataset, std::shared_ptr<Sampler> sampler, DataLoaderOptions options)
    : DataLoader(image_batches(std::move(dataset), options.transform), std::move(sampler), options) {}

int64_t DataLoader::batches_of(int64_t samples) const {
  return (samples + (options_.drop_last ? 0 : options_.batch_size - 1)) / options_.batch_size;
}
int64_t DataLoader::size() const { return batches_of(sampler_->size()); }

void DataLoader::load_state(const SamplerState& state) {
  sampler_->load_state(state);
  state_ = state;
}

DataLoader::Iterator DataLoader::begin() { return Iterator(*this, sampler_->start_pass()); }

DataLoader::Iterator::Iterator(DataLoader& loader, const SamplerState& start) : loader_(&loader), start_(start) {
  const auto begun = Clock::now();
  std::vector<int64_t> indices = loader.sampler_->indices(start);
  const auto count = static_cast<int64_t>(indices.size()), size = loader.options_.batch_size;
  const int64_t first_padding = count - loader.sampler_->padding(start);
  batches_ = loader.batches_of(count);
  auto make = [make_batch = loader.make_batch_, indices = std::move(indices), first_padding, size,
               epoch = start.epoch](int64_t k) {
    const auto begin = k * size, end = std::min(begin + size, static_cast<int64_t>(indices.size()));
    const std::span<const int64_t> mine(indices.data() + begin, static_cast<size_t>(end - begin));
    Batch batch = make_batch(mine, epoch);
    batch.indices.assign(mine.begin(), mine.end());
    batch.padding = std::max<int64_t>(0, end - std::max(begin, first_padding));
    return batch;
  };
  prefetcher_ = std::make_unique<Prefetcher>(batches_, loader.options_.num_workers, loader.options_.prefetch, make);
  advance();
  loader.waited_seconds_ += seconds_since(begun);
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  const auto begun = Clock::now();
  advance();
  loader_->waited_seconds_ += seconds_since(begun);
  return *this;
}

void DataLoader::Iterator::advance() {
  batch_ = {};  // first give its memory back, if nobody else kept it: the batch being made may use it
  if (delivered_ < batches_) batch_ = prefetcher_->next();
  ++delivered_;
  const int64_t used = delivered_ * loader_->options_.batch_size * loader_->sampler_->num_replicas();
  loader_->state_ = delivered_ >= batches_ ? SamplerState{start_.seed, start_.epoch + 1, 0}
                                           : SamplerState{start_.seed, start_.epoch, start_.position + used};
}

}  // namespace ringgrad
