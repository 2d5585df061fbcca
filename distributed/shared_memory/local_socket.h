// Abstract Unix sockets: they have no file, and exist within one network namespace.
#pragma once

#include <string>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

// Throws DistributedError if the name is taken.
FileDescriptor listen_local(const std::string& name);
// Throws TimeoutError at the deadline, DistributedError if no socket listens.
FileDescriptor connect_local(const std::string& name, Deadline deadline);

}  // namespace ringgrad
