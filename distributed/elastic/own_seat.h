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
class OwnSeat {
 public:
  // Throws DistributedError where what the launcher has passed makes no sense.
  OwnSeat();

  // Who joins later must be fit for it before it comes to the door, so that the others are not
  // disturbed: throws OutOfStepError, naming the first line that differs from the job's. Founders,
  // who come before there is a job, pass.
  void check_fit(const std::vector<std::string>& work) const;
  // By rank 0 of each generation: only the first one's word counts.
  void say_work(const std::vector<std::string>& work) const;

  // Comes to the door, and waits there for the next generation, for as long as the launcher does
  // (with whom this process would end). Nothing: the job has ended. `timed_out`: it comes because
  // it has missed another rank. Throws LeftBehindError.
  std::optional<Place> await_generation(bool timed_out);
  // Collective over the generation: all ranks' addresses, of at most Seat::kMaxAddress bytes, by
  // rank. Throws GroupChanged, TimeoutError.
  std::vector<std::string> exchange(const Place& place, const std::string& address,
                                    std::chrono::milliseconds timeout) const;

  // Throws GroupChanged where the generation is to be left.
  void check(const Place& place) const;
  void say_finished() const { membership_.page().finished = true; }

  // While it lives, this rank may write what outlives the job, such as a checkpoint: the launcher
  // kills a rank that it has to leave behind meanwhile, instead of waiting until it wakes. The
  // constructor throws LeftBehindError where that has happened.
  class WritePermit {
   public:
    explicit WritePermit(const OwnSeat& seat);
    ~WritePermit() { seat_.writing = false; }
    WritePermit(const WritePermit&) = delete;

   private:
    Seat& seat_;
  };

 private:
  Seat& own() const { return membership_.seat(index_); }

  const Membership membership_;
  const int index_;
  uint64_t seen_ = 0;  // the last generation that this rank was told of
};

}  // namespace ringgrad
