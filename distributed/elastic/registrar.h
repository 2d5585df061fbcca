// The launcher's side of the membership: who belongs to an elastic job, and when the next
// generation is formed.
//
// It alone decides who is alive: a rank that has ended is not, as the kernel says, nor one that
// does not come to the door in time after others have. README.md has the whole protocol.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/elastic/membership.h"

namespace ringgrad {

// As torchrun's --nnodes MIN:MAX, of ranks.
struct ElasticRange {
  // With fewer ranks than min the job saves and ends; max 0: the job is not elastic.
  int min = 0, max = 0;
  explicit operator bool() const { return max > 0; }
};

class Registrar {
 public:
  // `timeout`: how long a rank may take to come to the door.
  Registrar(ElasticRange range, int founders, std::chrono::milliseconds timeout);

  int descriptor() const { return membership_.descriptor(); }

  // A process is to be started for this seat, and then: it has been. It may come to the door in
  // between.
  void starting(int seat);
  void started(int seat, pid_t process) { entries_[static_cast<size_t>(seat)].process = process; }
  // Or it could not be: the seat is due again, some time.
  void not_started(int seat);
  // The seat's process has ended, as waitpid() says. True: the job goes on without it, as `what`
  // says, unless it is empty; the seat's next process is due where the end was none of its own
  // will.
  bool ended(int seat, int wait_status, const std::string& its_words, std::string& what);
  // Forms the next generation as soon as all have come that are to come. Returns what there is to
  // say, mostly nothing.
  std::string look();

  // Somebody wants another rank: it is started once there is a seat.
  void ask_for_one_more() { ++asked_for_; }
  std::optional<int> due();  // a seat for which a process is to be started now

  bool founded() const { return page().generation > 0; }
  // Whoever is left needs no waiting for: the work is done, or lost, or saved by too few.
  bool over() const;
  // Too few are left, or none: why the job ends.
  const std::string& verdict() const { return verdict_; }

 private:
  struct Entry {
    pid_t process = 0;    // 0: none
    bool joined = false;  // it has been a member
  };

  MembershipPage& page() const { return membership_.page(); }
  Seat& seat(int index) const { return membership_.seat(index); }
  bool is_veteran(int index) const;
  std::string look_at_founders(const std::vector<int>& come);
  bool leave_behind(int index);
  std::string form(std::vector<int> veterans, const std::vector<int>& newcomers);

  const ElasticRange range_;
  const int founders_;
  const std::chrono::milliseconds timeout_;
  const Membership membership_;
  std::vector<Entry> entries_;  // by seat
  std::deque<int> due_;
  int asked_for_ = 0, restarts_ = 0;
  bool lost_one_ = false;  // of this generation
  // With founders, then members, who have not come to the door.
  std::optional<Deadline> patience_;
  // With those whom nobody waits for, or who have a good reason.
  std::optional<Deadline> long_patience_;
  // Until when too few wait for ranks that are on their way.
  std::optional<Deadline> reinforcements_;
  // Generations in a row from which a rank came back because it missed another, who came, too.
  int fruitless_ = 0;
  std::string verdict_;
};

}  // namespace ringgrad
