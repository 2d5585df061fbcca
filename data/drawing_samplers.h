// Samplers whose epochs are draws: with replacement, or by weight. An epoch is a function of (seed,
// epoch), as a permutation is (sampler.h), so that training can go on in the middle of one.
#pragma once

#include <vector>

#include "ringgrad/data/sampler.h"

namespace ringgrad {

// num_samples draws of 0 … dataset_size - 1, each with the same probability, whatever was drawn
// before: torch.utils.data.RandomSampler(replacement=True).
class ReplacementSampler : public Sampler {
 public:
  // num_samples 0: as many as there are. Throws Error unless dataset_size >= 1.
  explicit ReplacementSampler(Int64 dataset_size, Int64 num_samples = 0, uint64_t seed = 0);

  // Throws IndexError when the position lies outside the epoch.
  std::vector<int64_t> indices(const SamplerState& at) const override;
  int64_t size() const override { return num_samples_; }

 private:
  int64_t dataset_size_;
  int64_t num_samples_;
};

// Each draw has the probability of its weight, among those that are left where nothing is replaced.
class WeightedRandomSampler : public Sampler {
 public:
  // Throws Error on a weight that is negative or not finite, or where fewer are above 0 than are
  // drawn (with replacement: none).
  WeightedRandomSampler(std::vector<double> weights, Int64 num_samples, Flag replacement = true,
                        uint64_t seed = 0);

  std::vector<int64_t> indices(const SamplerState& at) const override;  // as above
  int64_t size() const override { return num_samples_; }

 private:
  std::vector<double> weights_;
  int64_t num_samples_;
  bool replacement_;
};

}  // namespace ringgrad
