// Connects ranks with each other, pair by pair, each pair by the fastest way it has.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ringgrad {

class Transport;

struct ConnectOptions {
  // See transport_names() (agreement/transport_names.h).
  std::string transport = "auto";
  // The backend of the group: "ring", or one that is built on a ring of hosts.
  std::string backend = "ring";
  // Others reach this rank on it; it may be no address of this machine's.
  std::string host = "127.0.0.1";
  // Empty: one that rank 0 thinks up, which the exchange must keep from strangers.
  std::string secret;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // Called now and then while this rank waits for others. Throws if it need not wait any more.
  std::function<void()> check_wanted = {};
};

// Collective: gives all ranks' values, by rank, for this one's of at most 1024 bytes. The job's
// ranks exchange them at the rendezvous (rendezvous.h); those of a group that is split off, through
// the group that they have already.
using Exchange = std::function<std::vector<std::string>(const std::string& value)>;

// Everything that changes a result, as lines, which ranks compare before they connect.
// agreement/rank_table.cpp sets it before main; nullptr in a program without that file.
struct RankTable {
  std::string (*own)(const ConnectOptions& options);
  // Takes all ranks' tables, and sets what ranks can agree on, such as the processor's
  // instructions, to the same on all of them. If anything else differs, it throws the same
  // OutOfStepError on every rank.
  void (*agree)(const std::vector<std::string>& tables, int rank);
};
inline constinit const RankTable* rank_table = nullptr;

struct Connected {
  std::unique_ptr<Transport> transport;
  uint64_t job = 0;                // a random number that all ranks of this group share
  std::vector<int> machines = {};  // by rank: the first rank with which it shares memory
};

// Collective over the ranks of a new group. Throws DistributedError, TimeoutError, or
// OutOfStepError; EnvironmentError for an unknown transport.
Connected connect_ranks(int rank, int size, const ConnectOptions& options,
                        const Exchange& exchange);

}  // namespace ringgrad
