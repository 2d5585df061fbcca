#include "ringgrad/data/sampler.h"

#include <algorithm>
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
  // std::shuffle is another permutation with every standard library, hence our own.
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
  const int64_t left = remaining(at), mine = samples_of_rank(left, num_replicas_, rank_, options_);
  return mine > 0 && rank_ + (mine - 1) * num_replicas_ >= left ? 1 : 0;
}

std::vector<int64_t> DistributedSampler::indices(const SamplerState& at) const {
  remaining(at);  // or it throws: the position lies in the epoch
  return share_of_rank(epoch_order(dataset_size_, options_.shuffle, at.seed, at.epoch), at.position,
                       num_replicas_, rank_, options_);
}

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

void ShardDigest::add(int64_t index) {
  const PhiloxBlock hash = philox(0x7368617264u, static_cast<uint64_t>(index));
  low += hash.word[0] | static_cast<uint64_t>(hash.word[1]) << 32;
  high += hash.word[2] | static_cast<uint64_t>(hash.word[3]) << 32;
}

void ShardDigest::add(std::span<const int64_t> indices) {
  for (int64_t index : indices) add(index);
}

ShardDigest& ShardDigest::operator+=(const ShardDigest& other) {
  low += other.low;
  high += other.high;
  return *this;
}

ShardDigest complete_digest(int64_t n) {
  ShardDigest digest;
  for (int64_t i = 0; i < n; ++i) digest.add(i);
  return digest;
}

}  // namespace ringgrad
