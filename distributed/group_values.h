// Collectives on numbers and texts that the host knows, and the groups of machines.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// Collective. Every rank's values, in the order of ranks; all ranks give equally many. Throws as
// all_gather().
template <class T>
std::vector<T> all_gather_values(ProcessGroup& group, const std::vector<T>& own,
                                 const CollectiveOptions& options = {}) {
  const Tensor all =
      empty({group.size() * static_cast<int64_t>(own.size())}, {.dtype = dtype_of<T>});
  group.all_gather(all, tensor(own), options).wait();
  return to_vector<T>(all);
}

// The same for one text (or any bytes) of each rank, of any length.
std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& own);
// Every rank has the root's text then.
std::string broadcast_text(ProcessGroup& group, const std::string& text, Int root);

// Collective: returns the group of the ranks on this rank's machine, in their order. Its rank() is
// what launchers call the local rank.
std::shared_ptr<ProcessGroup> local_group(ProcessGroup& group);

}  // namespace ringgrad
