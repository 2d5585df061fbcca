// Samplers whose epochs are random draws: with replacement, or by weight. An epoch is a function of
// (seed, epoch), like a permutation (sampler.h), so training can continue in the middle of one.
#pragma once

#include <vector>

#include "ringgrad/data/sampler.h"

namespace ringgrad {

// num_samples independent, uniform draws of 0 … dataset_size - 1, like
// torch.utils.data.RandomSampler(replacement=True).
class ReplacementSampler : public Sampler {
 public:
  // num_samples 0 means dataset_size. Throws Error unless dataset_size >= 1.
  explicit ReplacementSampler(Int64 dataset_size, Int64 num_samples = 0, uint64_t seed = 0);

  // Throws IndexError if the position lies outside the epoch.
  std::vector<int64_t> indices(const SamplerState& at) const override;
  int64_t size() const override { return num_samples_; }

 private:
  int64_t dataset_size_;
  int64_t num_samples_;
};

// The probability of a draw is proportional to its weight. Without replacement, only the remaining
// samples count.
class WeightedRandomSampler : public Sampler {
 public:
  // Throws Error if a weight is negative or not finite, or if fewer weights are above 0 than are
  // drawn (with replacement: if none is).
  WeightedRandomSampler(std::vector<double> weights, Int64 num_samples, Flag replacement = true,
                        uint64_t seed = 0);

  std::vector<int64_t> indices(const SamplerState& at) const override;  // throws as above
  int64_t size() const override { return num_samples_; }

 private:
  std::vector<double> weights_;
  int64_t num_samples_;
  bool replacement_;
};

}  // namespace ringgrad
