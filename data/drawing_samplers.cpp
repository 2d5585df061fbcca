#include "ringgrad/data/drawing_samplers.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/random.h"

namespace ringgrad {
namespace {

// Returns other random numbers than those of the epoch's permutation.
RandomSequence numbers_of(const SamplerState& at) {
  return RandomSequence(at.seed, Purpose::Permutation, static_cast<uint64_t>(at.epoch), 1);
}

// Returns a uniform number in [0, 1).
double uniform(RandomSequence& random) {
  return static_cast<double>(random.next() >> 11) * 0x1p-53;
}

// Returns the epoch's draws from the position on.
std::vector<int64_t> from_position(std::vector<int64_t> draws, const SamplerState& at) {
  CHECK_AS(IndexError, at.position >= 0 && at.position <= static_cast<int64_t>(draws.size()),
           "sampler: position ", at.position, " is outside an epoch of ", draws.size(), " samples");
  draws.erase(draws.begin(), draws.begin() + at.position);
  return draws;
}

}  // namespace

ReplacementSampler::ReplacementSampler(Int64 dataset_size, Int64 num_samples, uint64_t seed)
    : Sampler(seed),
      dataset_size_(dataset_size),
      num_samples_(num_samples == 0 ? dataset_size : num_samples) {
  CHECK(dataset_size >= 1 && num_samples >= 0, "sampler: ", num_samples, " draws from ",
        dataset_size, " samples, expected at least 0, and at least 1 sample");
}

std::vector<int64_t> ReplacementSampler::indices(const SamplerState& at) const {
  RandomSequence random = numbers_of(at);
  std::vector<int64_t> draws(static_cast<size_t>(num_samples_));
  for (int64_t& draw : draws)
    draw = static_cast<int64_t>(random.below(static_cast<uint64_t>(dataset_size_)));
  return from_position(std::move(draws), at);
}

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights, Int64 num_samples,
                                             Flag replacement, uint64_t seed)
    : Sampler(seed),
      weights_(std::move(weights)),
      num_samples_(num_samples),
      replacement_(replacement) {
  int64_t positive = 0;
  for (const double& weight : weights_) {
    CHECK(std::isfinite(weight) && weight >= 0, "WeightedRandomSampler: weight ",
          &weight - weights_.data(), " is ", weight, ", expected a finite number of at least 0");
    positive += weight > 0;
  }
  CHECK(num_samples >= 0 && positive >= (replacement ? 1 : int64_t{num_samples}),
        "WeightedRandomSampler: ", num_samples, " draws, and ", positive,
        " weights above 0, expected as many, or with replacement one");
}

std::vector<int64_t> WeightedRandomSampler::indices(const SamplerState& at) const {
  RandomSequence random = numbers_of(at);
  std::vector<int64_t> draws(static_cast<size_t>(num_samples_));
  if (replacement_) {
    const double largest = *std::max_element(weights_.begin(), weights_.end());
    std::vector<double> sums;
    double sum = 0;  // the weights are divided by the largest, so the sum cannot overflow
    for (const double weight : weights_) sums.push_back(sum += weight / largest);
    for (int64_t& draw : draws) {
      const auto place = std::upper_bound(sums.begin(), sums.end(), uniform(random) * sum);
      draw = place - sums.begin();
    }
    return from_position(std::move(draws), at);
  }
  // Takes the first samples after exponentially distributed waits with these rates (Efraimidis
  // 2006). They are compared by their logarithms, which are finite for every weight above 0.
  std::vector<double> waits;
  for (const double weight : weights_)
    waits.push_back(weight > 0 ? std::log(-std::log1p(-uniform(random))) - std::log(weight)
                               : INFINITY);
  std::vector<int64_t> order(weights_.size());
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + num_samples_, order.end(),
                    [&](int64_t a, int64_t b) { return waits[a] < waits[b]; });
  std::copy_n(order.begin(), num_samples_, draws.begin());
  return from_position(std::move(draws), at);
}

}  // namespace ringgrad
