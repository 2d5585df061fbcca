#include "ringgrad/data/batch_part_sampler.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

BatchPartSampler::BatchPartSampler(int64_t dataset_size, int64_t batch, PartOf part_of,
                                   uint64_t seed)
    : Sampler(seed), dataset_size_(dataset_size), batch_(batch), part_of_(std::move(part_of)) {
  CHECK(batch >= 1, "sampler: a global batch of ", batch, " samples, expected at least one");
  const auto [begin, end] = part_of_(batch);
  CHECK(begin >= 0 && begin < end && end <= batch, "sampler: this rank has rows ", begin, " to ",
        end, " of a batch of ", batch, ", expected some");
  own_batch_ = end - begin;
}

std::vector<int64_t> BatchPartSampler::indices(const SamplerState& at) const {
  CHECK_AS(IndexError, at.position >= 0 && at.position <= dataset_size_, "sampler: position ",
           at.position, " is outside an epoch of ", dataset_size_, " samples");
  const std::vector<int64_t> order = epoch_order(dataset_size_, true, at.seed, at.epoch);
  std::vector<int64_t> result;
  for (int64_t place = at.position; place < dataset_size_; place += batch_) {
    const auto [begin, end] = part_of_(std::min(batch_, dataset_size_ - place));
    result.insert(result.end(), order.begin() + place + begin, order.begin() + place + end);
  }
  return result;
}

int64_t BatchPartSampler::size() const {
  const auto [begin, end] = part_of_(dataset_size_ % batch_);
  return dataset_size_ / batch_ * own_batch_ + end - begin;
}

}  // namespace ringgrad
