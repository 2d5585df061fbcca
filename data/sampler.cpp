#include "ringgrad/data/sampler.h"

#include <numeric>
#include <utility>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/random.h"

namespace ringgrad {

void Sampler::set_epoch(Int64 epoch) {
  if (epoch != next_.epoch) next_ = {next_.seed, epoch, 0};
}

SamplerState Sampler::start_pass() {
  return std::exchange(next_, {next_.seed, next_.epoch + 1, 0});
}

void Sampler::load_state(const SamplerState& state) {
  CHECK_AS(IndexError, state.epoch >= 0 && state.position >= 0, "sampler: state has epoch ",
           state.epoch, " and position ", state.position, ", expected both to be at least 0");
  next_ = state;
}

std::vector<int64_t> epoch_order(int64_t dataset_size, bool shuffle, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(dataset_size));
  std::iota(order.begin(), order.end(), 0);
  if (!shuffle) return order;
  // std::shuffle gives another permutation with every standard library, so this is our own.
  RandomSequence random(seed, Purpose::Permutation, static_cast<uint64_t>(epoch));
  for (size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[random.below(left)]);
  return order;
}

DistributedSampler::DistributedSampler(Int64 dataset_size, Int64 num_replicas, Int64 rank,
                                       DistributedSamplerOptions options)
    : Sampler(options.seed),
      dataset_size_(dataset_size),
      num_replicas_(num_replicas),
      rank_(rank),
      options_(options) {
  CHECK(dataset_size >= 0, "sampler: dataset_size is ", dataset_size, ", expected at least 0");
  CHECK(num_replicas >= 1, "sampler: num_replicas is ", num_replicas, ", expected at least 1");
  CHECK(rank >= 0 && rank < num_replicas, "sampler: rank is ", rank, ", expected 0 to ",
        num_replicas - 1);
}

int64_t DistributedSampler::size() const {
  return samples_of_rank(dataset_size_, num_replicas_, rank_, options_);
}

int64_t DistributedSampler::remaining(const SamplerState& at) const {
  CHECK_AS(IndexError, at.position >= 0 && at.position <= dataset_size_, "sampler: position ",
           at.position, " is outside an epoch of ", dataset_size_, " samples");
  return dataset_size_ - at.position;
}

int64_t DistributedSampler::padding(const SamplerState& at) const {
  const int64_t left = remaining(at);
  const int64_t mine = samples_of_rank(left, num_replicas_, rank_, options_);
  return mine > 0 && rank_ + (mine - 1) * num_replicas_ >= left ? 1 : 0;
}

std::vector<int64_t> DistributedSampler::indices(const SamplerState& at) const {
  remaining(at);  // throws unless the position lies in the epoch
  return share_of_rank(epoch_order(dataset_size_, options_.shuffle, at.seed, at.epoch), at.position,
                       num_replicas_, rank_, options_);
}

}  // namespace ringgrad
