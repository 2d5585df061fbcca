// Reads from the environment which rank of which job this process is. The program that started it
// has set the variables.
//
// torchrun and ringgrad launch set RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR
// MASTER_PORT. starters/other_starters.cpp knows the variables of mpirun and srun, which count if
// there is no RANK. If nothing is set, there is one rank, which connects to no other. A number of
// ranks above 1 without a rank is an error.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {

struct RankEnvironment {
  int rank = 0;
  int size = 1;
  // Among the ranks of this machine.
  int local_rank = 0;
  int local_size = 1;
  // The address at which the ranks meet, on rank 0's machine; the host is "" if nothing names it.
  Address address;
  // RINGGRAD_ADDRESS: where other machines reach this one, if it is no address of its own.
  std::string reached_at;
  // RINGGRAD_SECRET, or the contents of RINGGRAD_SECRET_FILE. "none" lets any process join.
  std::string secret;
  // "RANK", "OMPI_COMM_WORLD_RANK", …; empty: nothing was set.
  std::string source;
};

// Return the time that ranks wait for each other by default. default_timeout() is RINGGRAD_TIMEOUT
// seconds, or 60. default_rendezvous_timeout() holds until all ranks have come, which takes longer
// if machines start one after the other: RINGGRAD_RENDEZVOUS_TIMEOUT seconds, or the former. Both
// throw EnvironmentError for an invalid value.
std::chrono::milliseconds default_timeout();
std::chrono::milliseconds default_rendezvous_timeout();

using Environment = std::function<const char*(const char* name)>;  // getenv
// Returns nothing if the variable is not set, or `name` is nullptr. Throws EnvironmentError unless
// it is a number of at least 0.
std::optional<int> number_in(const Environment& environment, const char* name);
std::string text_in(const Environment& environment, const char* name);

// The names of the variables by which a starter tells its processes their ranks.
struct Starter {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;     // or nullptr
  bool else_no_rank = false;  // a process with `rank` but without `size` is no rank
};
// Other starters than torchrun. starters/other_starters.cpp sets them before main; nullptr in a
// program without that file.
struct OtherStarters {
  std::span<const Starter> all;
  // Called if the rank's starter has not said how many ranks are on this machine. Fills that in,
  // with the host of the job's first rank, and the rank's number on this machine if
  // `find_local_rank`.
  void (*place)(const Environment& environment, bool find_local_rank, RankEnvironment& rank);
  // The port that belongs to this job alone; nothing: it has no number.
  std::optional<uint16_t> (*port)(const Environment& environment);
};
inline constinit const OtherStarters* other_starters = nullptr;

// Returns RINGGRAD_SECRET, or the contents of RINGGRAD_SECRET_FILE, unless others know it or can
// guess it. starters/secret.cpp sets it before main. A program without that file takes
// RINGGRAD_SECRET as it is.
using SecretFrom = std::string (*)(const Environment& environment);
inline constinit SecretFrom secret_from = nullptr;

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

// Returns the value of a variable that the launcher has set for this rank alone. It is empty in the
// processes that a rank starts, which inherit the variable.
std::string launchers_variable(const char* name);

// Claims the rank that the environment names for this process, so that the processes it starts do
// not take it.
void take_rank(const RankEnvironment& rank);
// The variable with the process that has taken it.
inline constexpr const char* kRankProcess = "RINGGRAD_RANK_PROCESS";

}  // namespace ringgrad
