// One pass over the samples that a sampler visits, cut into batches, with the position of training
// after each batch.
#pragma once

#include <span>
#include <vector>

#include "ringgrad/data/sampler.h"

namespace ringgrad {

// Returns the number of batches. The last one may be short; drop_last leaves it out then.
int64_t batches_of(int64_t samples, int64_t batch_size, bool drop_last = false);

class Pass {
 public:
  // Starts the sampler's next pass.
  Pass(Sampler& sampler, int64_t batch_size, bool drop_last = false);

  int64_t epoch() const { return start_.epoch; }
  int64_t batches() const { return batches_; }
  const std::vector<int64_t>& indices() const { return indices_; }  // all samples in order
  // Returns the samples of batch k, or none after the last batch.
  std::span<const int64_t> batch(int64_t k) const;
  // Returns the number of samples at the end of batch k that only repeat others (Sampler::padding).
  int64_t padding(int64_t k) const;
  // Returns the position from which training continues after `batches` batches. After the last one
  // it is the beginning of the next epoch.
  SamplerState state_after(int64_t batches) const;

 private:
  SamplerState start_;
  std::vector<int64_t> indices_;
  int64_t batch_size_;
  int64_t batches_;
  int64_t first_padding_;
  int64_t used_by_all_;  // samples of all ranks per batch of this rank
};

}  // namespace ringgrad
