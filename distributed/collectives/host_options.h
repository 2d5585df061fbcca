// How the process group of CPU ranks does its collectives (host_process_group.h). Nothing here needs a transport, so a
// user's options may name it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ringgrad/distributed/rendezvous/connect.h"

namespace ringgrad {

// The algorithms of all-reduce, from the simplest on; which is fastest depends on the size (`ringgrad bench allreduce`
// measures them).
enum class AllReduceAlgorithm : uint8_t {
  Auto,             // SharedMemory where all ranks share memory, else Exchange for a few kilobytes, else SegmentedRing
  GatherBroadcast,  // everything through rank 0
  Exchange,         // everybody sends everything to everybody
  Ring,             // whole chunks
  SegmentedRing,    // chunks in segments: one travels while another is reduced
  SharedMemory,     // nothing travels
};

struct HostOptions {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::Auto;
  size_t segment_bytes = 256 << 10;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // how long a wait in which nothing moves may last
  bool checksums = false;                                        // a CRC-32 of every payload
  uint64_t job = 0;                 // what messages of this group carry, so that they are taken for no other group's
  ConnectOptions connect = {};      // for groups split off this one
  std::vector<int> job_ranks = {};  // what the ranks of a group that was split off are in the job, for errors
};

}  // namespace ringgrad
