// ElasticMember: a rank's side of the membership. It waits for the next generation, receives its
// rank, and exchanges addresses with the others.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/distributed/elastic/membership.h"

namespace ringgrad {

// A rank's place in a generation.
struct Place {
  uint64_t generation = 0;
  int rank = 0;
  int size = 1;
  bool last = false;  // the ranks must save and end
};

// Thread-safety: none.
class ElasticMember {
 public:
  // Throws DistributedError if the launcher has passed no valid descriptor or rank.
  ElasticMember();

  // Checks, before this rank asks to join, that it does the job's work, so that it disturbs no
  // other rank. Throws OutOfStepError, which names the first line that differs. Founders pass,
  // because they come before any work is known.
  void check_fit(const std::vector<std::string>& work) const;
  // Called by rank 0 of each generation. Only the first call of the job has an effect.
  void publish_work(const std::vector<std::string>& work) const;

  // Asks to join the next generation, and waits until the launcher forms it. Returns nothing if the
  // job has ended. `timed_out` says that this rank comes because it has missed another one. Throws
  // LeftBehindError. This process dies with its launcher, so the wait needs no timeout.
  std::optional<Place> await_generation(bool timed_out);
  // Collective over the generation: returns the addresses of all ranks, by rank. An address has at
  // most MemberSlot::kMaxAddress bytes. Throws GroupChanged, TimeoutError.
  std::vector<std::string> exchange(const Place& place, const std::string& address,
                                    std::chrono::milliseconds timeout) const;

  // Throws GroupChanged if this generation is over.
  void check(const Place& place) const;
  void mark_finished() const { membership_.page().finished = true; }

  // While a permit lives, this rank may write what outlives the job, such as a checkpoint. If the
  // launcher has to leave the rank behind meanwhile, it kills the rank instead of waiting until it
  // wakes. The constructor throws LeftBehindError if this rank was left behind already.
  class WritePermit {
   public:
    explicit WritePermit(const ElasticMember& member);
    ~WritePermit() { slot_.writing = false; }
    WritePermit(const WritePermit&) = delete;

   private:
    MemberSlot& slot_;
  };

 private:
  MemberSlot& own() const { return membership_.slot(index_); }

  const Membership membership_;
  const int index_;
  uint64_t seen_ = 0;  // the last generation that this rank has received
};

}  // namespace ringgrad
