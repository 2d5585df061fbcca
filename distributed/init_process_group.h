// The process group of the whole job, as the environment describes it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/distributed/collectives/messenger.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/rendezvous/connect.h"

namespace ringgrad {

// RINGGRAD_BACKEND, else "nccl" for a GPU and "ring" for the CPU.
std::string default_backend(Device device = {});
// RINGGRAD_TRANSPORT, else "auto".
std::string default_transport();
// RINGGRAD_CHECKSUMS: auto, on or off; else auto.
Checksums default_checksums();

struct InitOptions {
  // For tensors on the CPU: "ring", or "mpi" under mpirun or srun (mpi_process_group.cpp). For one
  // GPU per rank: "nccl", or "nccl-ring", whose all-reduce is our ring over NCCL's send and receive
  // (nccl_process_group.h). With both of these a ring of the hosts takes tensors on the CPU.
  std::string backend = default_backend();
  // This rank's GPU for these two backends; process_group().device() is the same from then on. The
  // default is cuda:LOCAL_RANK. With fewer GPUs than ranks, it counts from cuda:0 again.
  std::optional<Device> device = {};
  // The ring's; see transport_names() (rendezvous/connect.h).
  std::string transport = default_transport();
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::Auto;
  // The checksums of the ring, else default_checksums(). This and the times below are read from the
  // environment when the group is made. Read here, a wrong variable would throw in the middle of
  // main(), outside launch().
  std::optional<Checksums> checksums = {};
  // Sees every message that this rank sends in the ring's collectives. Sums in shared memory send
  // no messages.
  SendObserver on_send = {};
  // The time until all ranks have come, else default_rendezvous_timeout().
  std::optional<std::chrono::milliseconds> rendezvous_timeout = {};
  // The time of every wait after that, else default_timeout().
  std::optional<std::chrono::milliseconds> timeout = {};
};

// Connects this rank with the others and returns the group, which is also process_group() from then
// on. Blocks until all ranks have come; a job of one rank connects with none.
//
// Throws TimeoutError, which names missing ranks, DistributedError, or OutOfStepError. Throws
// EnvironmentError for settings that cannot be, such as an unknown backend or transport, or an
// address that is not rank 0's. Throws NotImplementedError for a backend that this build lacks,
// DeviceError for a GPU that does not exist, and Error if there is a group already.
std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});
std::shared_ptr<ProcessGroup> init_process_group(const RankEnvironment& environment,
                                                 const InitOptions& options);

// Collective: the ring of hosts that meet through `exchange` (rendezvous/connect.h), and is not
// process_group(). The options' transport and timeout count, not those of `connect`.
std::shared_ptr<ProcessGroup> connect_hosts(int rank, int size, const InitOptions& options,
                                            ConnectOptions connect, const Exchange& exchange);

// The job's group. Throws Error before init_process_group() and after destroy_process_group().
ProcessGroup& process_group();
bool is_process_group_initialized();

// Leaves the job's group in good order; a process that ends without it counts as dead. Does nothing
// without a group.
void destroy_process_group();

}  // namespace ringgrad
