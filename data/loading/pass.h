// One pass over the samples that a sampler visits, cut into batches, and where training stands
// after each of them.
#pragma once

#include <span>
#include <vector>

#include "ringgrad/data/sampler.h"

namespace ringgrad {

// How many batches there are; the last one may be short, or left out then.
int64_t batches_of(int64_t samples, int64_t batch_size, bool drop_last = false);

class Pass {
 public:
  // Starts the sampler's next pass.
  Pass(Sampler& sampler, int64_t batch_size, bool drop_last = false);

  int64_t epoch() const { return start_.epoch; }
  int64_t batches() const { return batches_; }
  const std::vector<int64_t>& indices() const { return indices_; }  // of all samples in order
  // The samples of batch k; none behind the last one.
  std::span<const int64_t> batch(int64_t k) const;
  // How many of them, at the end, only repeat others (Sampler::padding).
  int64_t padding(int64_t k) const;
  // Where training goes on when so many batches have been used; after the last one, at the
  // beginning of the next epoch.
  SamplerState state_after(int64_t batches) const;

 private:
  SamplerState start_;
  std::vector<int64_t> indices_;
  int64_t batch_size_;
  int64_t batches_;
  int64_t first_padding_;
  int64_t used_by_all_;  // samples, for a batch of this rank
};

}  // namespace ringgrad
