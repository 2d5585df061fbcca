// Reads from the environment which rank of which job this process is. The program that started it
// has set the variables.
//
// The first of these whose rank is set counts:
//   torchrun, ringgrad launch   RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
//   mpirun (Open MPI)           OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_RANK,LOCAL_SIZE}
//   mpirun (MPICH, Intel MPI)   PMI_{RANK,SIZE} MPI_LOCAL{RANKID,NRANKS}
//   srun (Slurm)                SLURM_{PROCID,STEP_NUM_TASKS,LOCALID}
// If nothing is set, there is one rank, which connects to no other. That is also the case in a
// batch script of Slurm, which has a SLURM_PROCID but is no step. A number of ranks above 1 without
// a rank is an error. MPI is never linked for this.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  // Among the ranks of this machine.
  int local_rank = 0;
  int local_size = 1;
  // The ranks meet there, on rank 0's machine; the host is "" where nobody says.
  Address address;
  // RINGGRAD_ADDRESS: where other machines reach this one, if it is no address of its own.
  std::string reached_at;
  // RINGGRAD_SECRET, or what RINGGRAD_SECRET_FILE holds; "none" : everybody may join.
  std::string secret;
  // "RANK", "OMPI_COMM_WORLD_RANK", …; empty: nothing was set.
  std::string source;
};

// How long ranks wait for each other unless told otherwise: RINGGRAD_TIMEOUT seconds, else 60; and
// until all have come, which may take longer where machines start one after the other:
// RINGGRAD_RENDEZVOUS_TIMEOUT, else the same. Throw EnvironmentError for a value that makes no
// sense.
std::chrono::milliseconds default_timeout();
std::chrono::milliseconds default_rendezvous_timeout();

using Environment = std::function<const char*(const char* name)>;  // getenv

// Throws EnvironmentError for values that make no sense, for a secret file that others can read,
// and for a secret of less than 16 characters other than "none".
//
// MASTER_ADDR defaults to loopback when all ranks are on this machine, and to a Slurm step's first
// node; MASTER_PORT to a number derived from the starter's job id. Under torchrun, whose own store
// may occupy MASTER_PORT, it is the port after it.
RankEnvironment rank_environment_from(const Environment& environment);
// Reads this process's own environment. Throws EnvironmentError also if this process is a child
// that inherited the environment of a process which is already that rank: both would claim to be
// the same rank.
RankEnvironment rank_environment();

// Claims the rank that the environment names for this process, so that the processes it starts do
// not take it.
void take_rank(const RankEnvironment& rank);
// The variable with the process that has taken it.
inline constexpr const char* kRankProcess = "RINGGRAD_RANK_PROCESS";

// Throws EnvironmentError when `host`, where ranks of several machines are to meet, is a name that
// leads back to this machine alone: Debian gives a machine's own name the address 127.0.1.1.
// "localhost" and numbers are taken as meant.
void check_reachable(const std::string& host);

// The first host of a Slurm node list: "node[03-05,9],gpu1" -> "node03".
std::string first_host(const std::string& node_list);

}  // namespace ringgrad
