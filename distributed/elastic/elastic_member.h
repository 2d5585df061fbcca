// A rank's side of the membership: it comes to the door, is told its place, and finds the others.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/distributed/elastic/membership.h"

namespace ringgrad {

// Where a rank stands in a generation.
struct Place {
  uint64_t generation = 0;
  int rank = 0;
  int size = 1;
  bool last = false;  // the ranks are to save, and to end
};

// Thread-safety: none.
class ElasticMember {
 public:
  // Throws DistributedError where what the launcher has passed makes no sense.
  ElasticMember();

  // Who joins later must be fit for it before it comes to the door, so that the others are not
  // disturbed: throws OutOfStepError, naming the first line that differs from the job's. Founders,
  // who come before there is a job, pass.
  void check_fit(const std::vector<std::string>& work) const;
  // By rank 0 of each generation: only the first one's word counts.
  void publish_work(const std::vector<std::string>& work) const;

  // Comes to the door, and waits there for the next generation, for as long as the launcher does
  // (with whom this process would end). Nothing: the job has ended. `timed_out`: it comes because
  // it has missed another rank. Throws LeftBehindError.
  std::optional<Place> await_generation(bool timed_out);
  // Collective over the generation: all ranks' addresses, of at most MemberSlot::kMaxAddress bytes,
  // by rank. Throws GroupChanged, TimeoutError.
  std::vector<std::string> exchange(const Place& place, const std::string& address,
                                    std::chrono::milliseconds timeout) const;

  // Throws GroupChanged where the generation is to be left.
  void check(const Place& place) const;
  void mark_finished() const { membership_.page().finished = true; }

  // While it lives, this rank may write what outlives the job, such as a checkpoint: the launcher
  // kills a rank that it has to leave behind meanwhile, instead of waiting until it wakes. The
  // constructor throws LeftBehindError where that has happened.
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
  uint64_t seen_ = 0;  // the last generation that this rank was told of
};

}  // namespace ringgrad
