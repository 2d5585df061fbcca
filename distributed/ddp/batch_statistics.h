// Exchanges the sums of a batch norm over all ranks' samples. In forward these are the statistics
// of their values; in backward, the two sums on which every sample's gradient depends.
#pragma once

#include <functional>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// The group that a layer's statistics use, and the options that ranks compare so that they do not
// mix up two layers.
struct StatisticsChannel {
  std::shared_ptr<ProcessGroup> group;
  CollectiveOptions options;
  // Replaces the exchange between ranks for virtual ranks.
  std::function<Tensor(const Tensor& own)> gather_shards = {};

  // Collective: returns the numbers [n] of all ranks, or shards, in their order: [ranks, n].
  Tensor gather(const Tensor& own) const;
};

struct BatchStatistics {
  // [C], over all ranks; var is the mean squared deviation
  Tensor mean;
  Tensor var;
  double count;  // values per channel, on all ranks
};

// Collective: of all ranks' x [N, C, H, W], whose N may differ, and be 0, in `dtype`. The same bits
// on all ranks.
BatchStatistics global_statistics(const Tensor& x, DType dtype, const StatisticsChannel& channel);

// Collective: a and b [C] become the sums over the ranks, as this rank must use them. The average
// over the ranks multiplies rank r's gradients by its `unit` (contribution.h). So each rank
// multiplies its own terms by its unit before this sum, and divides the sum by it afterwards.
void sum_over_ranks(const Tensor& a, const Tensor& b, double unit,
                    const StatisticsChannel& channel);

}  // namespace ringgrad
