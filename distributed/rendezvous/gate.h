// Gate: admits ranks of the job from listening sockets, and lets no stranger hold them up.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/distributed/rendezvous/handshake.h"

namespace ringgrad {

struct Guest {
  FileDescriptor socket;
  Claims claims;
};

// Apart from the ranks' own, at most 64 connections wait for their handshake at a time (the oldest one goes first),
// each for 5 seconds and about a kilobyte. They are served all at once, so silence and garbage cost the ranks nothing.
class Gate {
 public:
  Gate(std::vector<FileDescriptor> listeners, std::string secret, int ranks);

  // The next rank that has proved to belong to the job; nothing at the deadline.
  std::optional<Guest> next(Deadline deadline);

  int refused() const { return refused_; }  // connections of strangers so far

 private:
  struct Pending {
    Doorkeeper doorkeeper;
    Deadline deadline;
  };
  void accept_from(const FileDescriptor& listener);

  std::vector<FileDescriptor> listeners_;
  std::string secret_;
  const size_t max_pending_;
  std::deque<Pending> pending_;  // in the order of arrival, and so of deadlines
  int refused_ = 0;
};

}  // namespace ringgrad
