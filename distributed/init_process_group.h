// The process group of the whole job, as the environment describes it.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "distributed/process_group.h"
#include "distributed/rendezvous.h"
#include "distributed/ring_options.h"

namespace ringgrad {

std::string default_backend();  // RINGGRAD_BACKEND, else "ring"
std::string default_channel();  // RINGGRAD_TRANSPORT, else "auto"

struct InitOptions {
  std::string backend = default_backend();  // "ring"; "mpi" under mpirun or srun (mpi_process_group.h)
  std::string channel = default_channel();  // of the ring: "shm", "tcp"
  Algorithm algorithm = Algorithm::Auto;
  bool checksums = false;
  std::chrono::milliseconds timeout = default_timeout();  // of the rendezvous, and of every wait after it
};

// Meets the other ranks and returns the group, which is also process_group() from then on. Blocks until all ranks have
// come. A job of one rank meets nobody. Throws TimeoutError naming missing ranks, DistributedError, OutOfStepError;
// Error when there is a group already.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});
std::shared_ptr<ProcessGroup> init_process_group(const Rendezvous& rendezvous, const InitOptions& options);

// The job's group. Throws Error before init_process_group() and after destroy_process_group().
ProcessGroup& process_group();
bool is_process_group_initialized();

// Leaves the job's group in good order; a process that ends without it counts as dead. Does nothing without a group.
void destroy_process_group();

// A group of the ranks on this machine: split() of `group` by machine.
std::shared_ptr<ProcessGroup> local_process_group(ProcessGroup& group);

}  // namespace ringgrad
