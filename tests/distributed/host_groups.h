// Process groups of ranks that are threads of the test.
#pragma once

#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/tests/distributed/run_ranks.h"

namespace ringgrad {

inline std::vector<std::unique_ptr<HostProcessGroup>> host_groups(int size,
                                                                  const char* channel = "shm",
                                                                  HostOptions options = {}) {
  std::vector<std::unique_ptr<HostProcessGroup>> groups;
  for (auto& transport : in_process_transports(size, channel))
    groups.push_back(std::make_unique<HostProcessGroup>(std::move(transport), options));
  return groups;
}

}  // namespace ringgrad
