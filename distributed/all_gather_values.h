// all_gather() of a few numbers that the host knows.
#pragma once

#include <vector>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// Collective. Every rank's values, in the order of ranks; all ranks give equally many. Throws as all_gather().
template <class T>
std::vector<T> all_gather_values(ProcessGroup& group, const std::vector<T>& own,
                                 const CollectiveOptions& options = {}) {
  const Tensor all = empty({group.size() * static_cast<int64_t>(own.size())}, {.dtype = dtype_of<T>});
  group.all_gather(all, tensor(own), options).wait();
  return to_vector<T>(all);
}

}  // namespace ringgrad
