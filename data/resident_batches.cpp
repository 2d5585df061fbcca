#include "ringgrad/data/resident_batches.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/sequences.h"

namespace ringgrad {
namespace {

constexpr const char* kName = "resident_batches";

// y[i] = x[index[i]].
void select(const Tensor& y, const Tensor& x, const Tensor& index) {
  const auto row = [](const Tensor& t) {
    return t.as_strided({1, t.numel(), 1}, {t.numel(), 1, 1}, t.storage_offset());
  };
  kernels::index_select(row(y), row(x), index);
}

}  // namespace

size_t ResidentBatches::bytes(const ImageDataset& dataset) {
  return dataset.images.storage()->nbytes() + dataset.labels.storage()->nbytes();
}

ResidentBatches::ResidentBatches(const ImageDataset& dataset, std::shared_ptr<Sampler> sampler,
                                 Int64 batch_size, const ImageTransform& transform,
                                 TensorOptions images)
    : sampler_(std::move(sampler)),
      batch_size_(batch_size),
      options_(images),
      augment_(transform.augment) {
  OpScope scope(kName);
  check_dataset_invariants(dataset);
  CHECK(batch_size >= 1, kName, ": batch_size is ", batch_size, ", expected at least 1");
  const Device device = images.device;
  const TensorOptions number{.dtype = DType::Int64, .device = device};
  normalization_ = normalization(transform, dataset.images.size(1), device);
  images_ = ringgrad::on_device(dataset.images, device);
  labels_ = ringgrad::on_device(dataset.labels, device);
  order_ = empty({sampler_->size()}, number);
  positions_ = empty({batch_size}, number);
  epoch_ = empty({}, number);
}

void ResidentBatches::start_pass() {
  pass_.emplace(*sampler_, batch_size_);
  untouched_ = sampler_->state();
  batch_ = 0;
  for (const int64_t index : pass_->indices())
    CHECK_AS(IndexError, index >= 0 && index < images_.size(0), kName, ": the sampler gave index ",
             index, ", expected 0 to ", images_.size(0) - 1);
  const auto count = static_cast<int64_t>(pass_->indices().size());
  copy_(order_.as_strided({count}, {1}, 0), tensor(pass_->indices()));
  copy_(positions_, arange(batch_size_));
  fill_(epoch_, pass_->epoch());
}

void ResidentBatches::advance() {
  ++batch_;
  kernels::affine(positions_, positions_, 1, batch_size_);
}

Batch ResidentBatches::current() {
  OpScope scope(kName);
  const std::span<const int64_t> samples = indices();
  const auto count = static_cast<int64_t>(samples.size());
  const TensorOptions number{.dtype = DType::Int64, .device = options_.device};
  Batch batch{.data = empty({count, images_.size(1), images_.size(2), images_.size(3)}, options_),
              .target = empty({count}, number),
              .indices = {samples.begin(), samples.end()},
              .padding = pass_->padding(batch_)};
  const Tensor index = empty({count}, number);
  select(index, order_, positions_.as_strided({count}, {1}, 0));
  select(batch.target, labels_, index);
  kernels::augment_images(batch.data, images_, index, epoch_, normalization_.scale,
                          normalization_.shift, augment_);
  return batch;
}

SamplerState ResidentBatches::state() const {
  return pass_ && sampler_->state() == untouched_ ? pass_->state_after(batch_ + 1)
                                                  : sampler_->state();
}

void ResidentBatches::load_state(const SamplerState& state) {
  sampler_->load_state(state);
  pass_.reset();
}

}  // namespace ringgrad
