// The launcher's side of the membership: who belongs to an elastic job, and when the next
// generation is formed.
//
// It alone decides who is alive: a rank that has ended is not, as the kernel says, nor one that
// does not come to the door in time after others have. README.md has the whole protocol.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/elastic/membership.h"
#include "ringgrad/distributed/job/job_members.h"

namespace ringgrad {

class Coordinator final : public JobMembers {
 public:
  // See make_job_members().
  Coordinator(ElasticRange range, int founders, std::chrono::milliseconds timeout);

  int descriptor() const override { return membership_.descriptor(); }

  void starting(int slot) override;
  void started(int slot, pid_t process) override {
    entries_[static_cast<size_t>(slot)].process = process;
  }
  void not_started(int slot) override;
  bool ended(int slot, int wait_status, const std::string& its_words, std::string& what) override;
  std::string look() override;
  void ask_for_one_more() override { ++asked_for_; }
  std::optional<int> due() override;
  bool over() const override;
  const std::string& verdict() const override { return verdict_; }

  bool founded() const { return page().generation > 0; }

 private:
  struct Entry {
    pid_t process = 0;    // 0: none
    bool joined = false;  // it has been a member
  };

  MembershipPage& page() const { return membership_.page(); }
  MemberSlot& slot(int index) const { return membership_.slot(index); }
  bool is_member(int index) const;
  std::string look_at_founders(const std::vector<int>& come);
  bool leave_behind(int index);
  std::string form(std::vector<int> members, const std::vector<int>& newcomers);

  const ElasticRange range_;
  const int founders_;
  const std::chrono::milliseconds timeout_;
  const Membership membership_;
  // By slot.
  std::vector<Entry> entries_;
  std::deque<int> due_;
  int asked_for_ = 0;
  int restarts_ = 0;
  // This generation has lost one.
  bool lost_one_ = false;
  // Patience with founders, then members, who have not come to the door.
  std::optional<Deadline> deadline_;
  // Patience with those whom nobody waits for, or who have a good reason.
  std::optional<Deadline> long_deadline_;
  // Too few wait until then for ranks that are on their way.
  std::optional<Deadline> starting_deadline_;
  // Generations in a row from which a rank came back because it missed another, who came, too.
  int false_alarms_ = 0;
  std::string verdict_;
};

}  // namespace ringgrad
