// The rendezvous: where the ranks of a job meet, once, at MASTER_ADDR:MASTER_PORT.
//
// Every rank brings a value and takes all ranks' values away. That is all a job needs to begin, and
// because everybody says who he is, rank 0 can tell who is missing, and who came twice. (A general
// key-value store can do neither.) It listens on the given address only, admits nobody without the
// job's secret, and is gone as soon as all have met.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {

struct RendezvousOptions {
  Address address;  // rank 0 listens here, all others connect to it
  // Empty, on a loopback address only: all ranks are of one user, and nobody else's process is
  // admitted.
  std::string secret;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  IfForeign foreign = IfForeign::Fail;  // what rank 0 does where the address is not its machine's
};

// Collective over the job's ranks: returns all ranks' values, by rank. A value has at most
// 1024 bytes. Throws TimeoutError naming the missing ranks; DistributedError for a port that is
// taken and a rank that came twice (on the later one); OutOfStepError where secrets or users
// differ; EnvironmentError for an address that is not this machine's, or no loopback without a
// secret; NetworkError for one that is unknown; OutOfStepError when ranks differ in `size`.
std::vector<std::string> meet(int rank, int size, const std::string& value,
                              const RendezvousOptions& options);

}  // namespace ringgrad
