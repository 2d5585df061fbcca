// The rendezvous: the ranks of a job meet, once, at MASTER_ADDR:MASTER_PORT.
//
// Every rank brings a value and receives all ranks' values, which is all that a job needs to begin.
// Every rank gives its number, so rank 0 can say which rank is missing, and which one came twice.
// (A general key-value store can do neither.) It listens on the given address only, admits no rank
// without the job's secret, and closes as soon as all ranks have met.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {

struct RendezvousOptions {
  Address address;  // rank 0 listens here, all others connect to it
  // Empty only on a loopback address: then all ranks belong to one user, and no other user's
  // process is admitted.
  std::string secret;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  IfForeign foreign = IfForeign::Fail;  // for rank 0, if the address is not its machine's
};

// Collective over the job's ranks: returns all ranks' values, by rank. A value has at most 1024
// bytes. Throws TimeoutError, which names the missing ranks. Throws DistributedError if the port is
// taken, or a rank came twice (on the later one). Throws OutOfStepError if secrets, users or `size`
// differ. Throws EnvironmentError if the address is not this machine's, or is no loopback address
// and there is no secret. Throws NetworkError if the address is unknown.
std::vector<std::string> meet(int rank, int size, const std::string& value,
                              const RendezvousOptions& options);

}  // namespace ringgrad
