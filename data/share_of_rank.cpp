#include "ringgrad/data/sampler.h"

namespace ringgrad {

// If some ranks took one step more, they would wait for the others forever. So the last round is
// left out (drop_last) or filled with the first samples of the order (pad); with neither, the
// caller joins uneven ranks.
int64_t samples_of_rank(int64_t left, int64_t num_replicas, int64_t rank,
                        const DistributedSamplerOptions& options) {
  if (options.drop_last) return left / num_replicas;
  return left / num_replicas + (left % num_replicas > (options.pad ? 0 : rank));
}

std::vector<int64_t> share_of_rank(const std::vector<int64_t>& order, int64_t position,
                                   int64_t num_replicas, int64_t rank,
                                   const DistributedSamplerOptions& options) {
  const auto size = std::ssize(order);
  const auto left = size - position;
  const int64_t mine = samples_of_rank(left, num_replicas, rank, options);
  std::vector<int64_t> result(static_cast<size_t>(mine));
  for (int64_t i = 0; i < mine; ++i) {
    const int64_t place = rank + i * num_replicas;
    result[i] = order[place < left ? position + place : (place - left) % size];
  }
  return result;
}

}  // namespace ringgrad
