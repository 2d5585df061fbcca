// Ranks that are threads of one process: for tests, which so run under a sanitizer or a debugger.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "distributed/transport.h"

namespace ringgrad {

// Connected transports for ranks 0 … size-1, each to be used by its own thread. `channel` is "shm" (the queues and
// boards that processes use, too; the threads see them at the same addresses) or "tcp" (loopback connections).
std::vector<std::unique_ptr<Transport>> in_process_transports(int size, std::string_view channel = "shm");

}  // namespace ringgrad
