#include "ringgrad/data/data_loader.h"

#include <chrono>
#include <utility>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/loading/pass.h"
#include "ringgrad/data/loading/prefetch.h"
#include "ringgrad/data/loading/write_images.h"

namespace ringgrad {

MakeBatch image_batches(ImageDataset dataset, ImageTransform transform) {
  check_dataset_invariants(dataset);
  const Normalization by = normalization(transform, dataset.images.size(1));
  return [dataset = std::move(dataset), augment = transform.augment, by](
             std::span<const int64_t> indices, int64_t epoch) {
    OpScope scope("data_loader");
    const Shape& all = dataset.images.shape();
    const auto count = static_cast<int64_t>(indices.size());
    Batch batch{.data = empty({count, all[1], all[2], all[3]}),
                .target = empty({count}, {.dtype = DType::Int64})};
    for (int64_t i = 0; i < count; ++i) {
      const int64_t index = indices[i];
      CHECK_AS(IndexError, index >= 0 && index < dataset.size(),
               "data_loader: the sampler gave index ", index, ", expected 0 to ",
               dataset.size() - 1);
      batch.target.data<int64_t>()[i] = dataset.labels.data<int64_t>()[index];
    }
    write_images(batch.data, dataset.images, indices, epoch, by, augment);
    return batch;
  };
}

DataLoader::DataLoader(MakeBatch make_batch, std::shared_ptr<Sampler> sampler,
                       DataLoaderOptions options)
    : make_batch_(std::move(make_batch)),
      sampler_(std::move(sampler)),
      options_(std::move(options)) {
  CHECK(make_batch_ && sampler_, "data_loader: needs a source of batches and a sampler");
  CHECK(options_.batch_size >= 1, "data_loader: batch_size is ", options_.batch_size,
        ", expected at least 1");
  CHECK(options_.num_workers >= 0 && options_.num_workers <= 256, "data_loader: num_workers is ",
        options_.num_workers, ", expected 0 to 256");
  CHECK(options_.num_workers == 0 || prefetch, "data_loader: num_workers is ", options_.num_workers,
        ", but this program is linked without worker threads; link all of "
        "ringgrad::ringgrad, or let num_workers be 0");
  CHECK(options_.prefetch >= 1 && options_.prefetch <= 4096, "data_loader: prefetch is ",
        options_.prefetch, ", expected 1 to 4096");
  state_ = untouched_ = sampler_->state();
}

DataLoader::DataLoader(ImageDataset dataset, std::shared_ptr<Sampler> sampler,
                       DataLoaderOptions options)
    : DataLoader(image_batches(std::move(dataset), options.transform), std::move(sampler),
                 options) {}

int64_t DataLoader::size() const {
  return batches_of(sampler_->size(), options_.batch_size, options_.drop_last);
}

void DataLoader::load_state(const SamplerState& state) {
  sampler_->load_state(state);
  state_ = untouched_ = state;
}

DataLoader::Iterator DataLoader::begin() { return Iterator(*this); }

DataLoader::Iterator::Iterator(DataLoader& loader) : loader_(&loader) {
  const auto begun = std::chrono::steady_clock::now();
  const auto& options = loader.options_;
  pass_ = std::make_shared<Pass>(*loader.sampler_, options.batch_size, options.drop_last);
  loader.untouched_ = loader.sampler_->state();
  loader.state_ = pass_->state_after(0);
  batch_number_ = [make_batch = loader.make_batch_, pass = pass_](int64_t k) {
    const std::span<const int64_t> mine = pass->batch(k);
    Batch batch = make_batch(mine, pass->epoch());
    batch.indices.assign(mine.begin(), mine.end());
    batch.padding = pass->padding(k);
    return batch;
  };
  if (options.num_workers > 0)
    batch_number_ =
        prefetch(pass_->batches(), options.num_workers, options.prefetch, std::move(batch_number_));
  advance();
  loader.waited_seconds_ += seconds_since(begun);
}

bool DataLoader::Iterator::operator==(std::default_sentinel_t) const {
  return delivered_ > pass_->batches();
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  const auto begun = std::chrono::steady_clock::now();
  advance();
  loader_->waited_seconds_ += seconds_since(begun);
  return *this;
}

void DataLoader::Iterator::advance() {
  // The memory is returned first, if no one else kept it, because the batch being made may use it.
  batch_ = {};
  const int64_t k = delivered_++;  // a batch that fails counts, too; the next one follows it
  if (k < pass_->batches()) batch_ = batch_number_(k);
  loader_->state_ = pass_->state_after(delivered_);
}

}  // namespace ringgrad
