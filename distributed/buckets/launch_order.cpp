#include "ringgrad/distributed/buckets/launch_order.h"

namespace ringgrad {

std::vector<int> buckets_completed(std::vector<int>& pending,
                                   const std::vector<int>& buckets_of_parameter) {
  std::vector<int> complete;
  for (const int bucket : buckets_of_parameter)
    if (--pending[bucket] == 0) complete.push_back(bucket);
  return complete;
}

size_t launchable(const std::vector<int>& pending, size_t next) {
  while (next + 1 < pending.size() && pending[next] == 0) ++next;
  return next;
}

}  // namespace ringgrad
