#include "ringgrad/data/dataset.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/sampler.h"

namespace ringgrad {

Subset::Subset(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::move(indices)) {
  CHECK(dataset_, "Subset: the data set is a null pointer");
  for (const int64_t i : indices_)
    CHECK_AS(IndexError, i >= 0 && i < dataset_->size(), "Subset: there is no sample ", i,
             ", expected 0 to ", dataset_->size() - 1);
}

Example Subset::get(int64_t i) const {
  CHECK_AS(IndexError, i >= 0 && i < size(), "Subset: there is no sample ", i, ", expected 0 to ",
           size() - 1);
  return dataset_->get(indices_[i]);
}

ConcatDataset::ConcatDataset(std::vector<std::shared_ptr<const Dataset>> datasets)
    : datasets_(std::move(datasets)) {
  CHECK(!datasets_.empty(), "ConcatDataset: there are no data sets, expected at least one");
  int64_t end = 0;
  for (const auto& dataset : datasets_) {
    CHECK(dataset, "ConcatDataset: data set ", ends_.size(), " is a null pointer");
    ends_.push_back(end += dataset->size());
  }
}

Example ConcatDataset::get(int64_t i) const {
  CHECK_AS(IndexError, i >= 0 && i < size(), "ConcatDataset: there is no sample ", i,
           ", expected 0 to ", size() - 1);
  const auto which = std::upper_bound(ends_.begin(), ends_.end(), i) - ends_.begin();
  return datasets_[which]->get(which == 0 ? i : i - ends_[which - 1]);
}

TensorDataset::TensorDataset(const Tensor& data, const Tensor& target)
    : data_(as_contiguous(data.detach())),
      target_(target ? as_contiguous(target.detach()) : target) {
  CHECK_AS(
      ShapeError,
      data_.dim() >= 1 && (!target_ || (target_.dim() >= 1 && target_.size(0) == data_.size(0))),
      "TensorDataset: the data has shape ", data_.shape(), ", the target ",
      target_ ? str(target_.shape()) : "(undefined)", ", expected as many rows");
}

Example TensorDataset::get(int64_t i) const {
  CHECK_AS(IndexError, i >= 0 && i < size(), "TensorDataset: there is no sample ", i,
           ", expected 0 to ", size() - 1);
  const auto row = [i](const Tensor& x) {
    if (!x) return x;
    Shape shape = x.shape();
    shape.erase(0);
    return x.as_strided(shape, contiguous_strides(shape), x.storage_offset() + i * shape.numel());
  };
  return {row(data_), row(target_)};
}

std::vector<std::shared_ptr<Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                  const std::vector<int64_t>& sizes,
                                                  uint64_t seed) {
  CHECK(dataset, "random_split: the data set is a null pointer");
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    CHECK(size >= 0 && size <= dataset->size() - sum,
          "random_split: the sizes add up to more than the data set's ", dataset->size(),
          " samples, or one is negative");
    sum += size;
  }
  CHECK(sum == dataset->size(), "random_split: the sizes add up to ", sum, ", the data set has ",
        dataset->size(), " samples");
  const RandomSampler order(dataset->size(), seed);
  const std::vector<int64_t> all = order.indices(order.state());
  std::vector<std::shared_ptr<Subset>> parts;
  auto begin = all.begin();
  for (const int64_t size : sizes) {
    parts.push_back(std::make_shared<Subset>(dataset, std::vector<int64_t>(begin, begin + size)));
    begin += size;
  }
  return parts;
}

Tensor stack_samples(const std::vector<Tensor>& samples) {
  CHECK(!samples.empty(), "stack_samples: there are no samples");
  const Tensor& first = samples[0];
  std::vector<int64_t> sizes{static_cast<int64_t>(samples.size())};
  if (first) sizes.insert(sizes.end(), first.shape().begin(), first.shape().end());
  const Tensor all = first ? empty(Shape(sizes), {.dtype = first.dtype()}) : Tensor();
  for (size_t i = 0; i < samples.size(); ++i) {
    const Tensor& sample = samples[i];
    CHECK_AS(ShapeError,
             sample.defined() == first.defined() && (!first || sample.shape() == first.shape()),
             "stack_samples: sample ", i, " of the batch has shape ",
             sample ? str(sample.shape()) : "(undefined)", ", the first one ",
             first ? str(first.shape()) : "(undefined)", ", expected one shape");
    if (!first) continue;
    CHECK_AS(DTypeError, sample.dtype() == first.dtype(), "stack_samples: sample ", i,
             " of the batch is ", sample.dtype(), ", the first one ", first.dtype(),
             ", expected one dtype");
    const int64_t offset = static_cast<int64_t>(i) * first.numel();
    copy_(all.as_strided(first.shape(), contiguous_strides(first.shape()), offset),
          sample.detach());
  }
  return all;
}

MakeBatch stacked_batches(std::shared_ptr<const Dataset> dataset) {
  CHECK(dataset, "data_loader: the data set is a null pointer");
  return [dataset = std::move(dataset)](std::span<const int64_t> indices, int64_t) {
    std::vector<Tensor> data;
    std::vector<Tensor> target;
    for (const int64_t index : indices) {
      CHECK_AS(IndexError, index >= 0 && index < dataset->size(),
               "data_loader: the sampler gave index ", index, ", expected 0 to ",
               dataset->size() - 1);
      Example example = dataset->get(index);
      data.push_back(std::move(example.data));
      target.push_back(std::move(example.target));
    }
    return Batch{.data = stack_samples(data), .target = stack_samples(target)};
  };
}

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<Sampler> sampler,
                       DataLoaderOptions options)
    : DataLoader(stacked_batches(std::move(dataset)), std::move(sampler), std::move(options)) {}

}  // namespace ringgrad
