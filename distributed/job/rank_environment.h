// Which rank of which job is this process? Whoever started it has said so in the environment.
//
// In this order, the first whose rank is set counts:
//   torchrun, ringgrad launch   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
//   mpirun (Open MPI)           OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE}
//   mpirun (MPICH, Intel MPI)   PMI_{RANK,SIZE} MPI_LOCAL{RANKID,NRANKS}
//   srun (Slurm)                SLURM_{PROCID,STEP_NUM_TASKS,LOCALID}
// Nothing set: one rank, which meets nobody; as in a batch script of Slurm, which has a SLURM_PROCID but is no step. A
// number of ranks above 1 without a rank is an error.
// MPI is never linked for this.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {

struct RankEnvironment {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the ranks of this machine
  Address address;                     // where the ranks meet, on rank 0's machine; the host is "" where nobody says
  std::string reached_at;  // RINGGRAD_ADDRESS: where other machines reach this one, if it is no address of its own
  std::string secret;      // RINGGRAD_SECRET, or what RINGGRAD_SECRET_FILE holds; "none" : everybody may join
  std::string source;      // "RANK", "OMPI_COMM_WORLD_RANK", …; empty: nothing was set
};

// How long ranks wait for each other unless told otherwise: RINGGRAD_TIMEOUT seconds, else 60; and until all have come,
// which may take longer where machines start one after the other: RINGGRAD_RENDEZVOUS_TIMEOUT, else the same. Throw
// EnvironmentError for a value that makes no sense.
std::chrono::milliseconds default_timeout();
std::chrono::milliseconds default_rendezvous_timeout();

using Environment = std::function<const char*(const char* name)>;  // getenv

// Throws EnvironmentError for values that make no sense, for a secret file that others can read, and for a secret of
// less than 16 characters other than "none".
//
// MASTER_ADDR defaults to loopback when all ranks are on this machine, and to a Slurm step's first node; MASTER_PORT to
// a number derived from the starter's job id. Under torchrun, whose own store may occupy MASTER_PORT, it is the port
// after it.
RankEnvironment rank_environment_from(const Environment& environment);
// This process's own. Throws EnvironmentError, too, where another process is that rank already, which has passed its
// environment on to this one, a child of it: two processes would say that they are the same rank.
RankEnvironment rank_environment();

// From now on this process is the rank that its environment names, and what it starts is not.
void take_rank(const RankEnvironment& rank);
inline constexpr const char* kRankProcess = "RINGGRAD_RANK_PROCESS";  // the variable that says so: who has taken it

// Throws EnvironmentError when `host`, where ranks of several machines are to meet, is a name that leads back to this
// machine alone: Debian gives a machine's own name the address 127.0.1.1. "localhost" and numbers are taken as meant.
void check_reachable(const std::string& host);

// The first host of a Slurm node list: "node[03-05,9],gpu1" -> "node03".
std::string first_host(const std::string& node_list);

}  // namespace ringgrad
