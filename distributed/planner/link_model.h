// LinkModel: the cost of an all-reduce, as a latency and a time per byte (Hockney 1994, "The
// communication challenge for MPP"). Both are fitted to measurements of a few sizes.
#pragma once

#include <span>
#include <vector>

#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

struct LinkModel {
  double latency = 0;   // α, seconds
  double per_byte = 0;  // β, seconds
  double seconds(double bytes) const { return latency + per_byte * bytes; }
};

struct LinkSample {
  double bytes;
  double seconds;
};

// The line with the least squares of relative errors, so that small sizes count as much as large
// ones; neither α nor β is negative. Of samples of one size only, all is β. Zeros without samples.
LinkModel fit(std::span<const LinkSample> samples);

// Collective: times all-reduces of float32 on the group's device, `repetitions` of each size, in
// memory that the ranks share if they can, as gradients do. Each time runs from the moment when all
// ranks have come to the moment when this one has the sum.
std::vector<LinkSample> sample_all_reduce(ProcessGroup& group, const std::vector<int64_t>& bytes,
                                          int repetitions);

}  // namespace ringgrad
