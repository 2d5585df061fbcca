// What ranks tell each other for a batch norm over the samples of all of them: forward, the
// statistics of their values; backward, the sums that every sample's gradient depends on.
#pragma once

#include <functional>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// Where a layer's statistics travel, and what the ranks compare, so that two layers are not mixed
// up.
struct StatisticsChannel {
  std::shared_ptr<ProcessGroup> group;
  CollectiveOptions options;
  std::function<Tensor(const Tensor& own)> gather_shards = {};  // where virtual ranks meet instead

  // Collective: this rank's numbers [n] beside those of all others, in the order of ranks, or of
  // shards: [ranks, n].
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

// Collective: a and b [C] become the sums over the ranks, as this rank must use them. Rank r's
// gradients are multiplied by its `unit` in the average over the ranks (contribution.h): so are
// what it adds here, and what it gets is divided by its own, because what it makes of that will be
// multiplied, too.
void sum_over_ranks(const Tensor& a, const Tensor& b, double unit,
                    const StatisticsChannel& channel);

}  // namespace ringgrad
