// Coordinator: the launcher's side of the membership. It decides which ranks belong to an elastic
// job, and when the next generation is formed.
//
// It alone decides which ranks are alive. A rank whose process has ended is not alive. Neither is a
// member that does not wait for the next generation in time after others do. README.md has the
// whole protocol.
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
    pid_t process = 0;    // 0: no process
    bool joined = false;  // the process has been a member
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
  // One entry for each slot.
  std::vector<Entry> entries_;
  std::deque<int> due_;
  int asked_for_ = 0;
  int restarts_ = 0;
  // A process of this generation has ended.
  bool lost_one_ = false;
  // The time until which founders, and later members, may take to come.
  std::optional<Deadline> deadline_;
  // The same where no member waits for the absent ones, or an absent one is writing.
  std::optional<Deadline> long_deadline_;
  // With too few ranks waiting, the time until which ranks that are being started may take to come.
  std::optional<Deadline> starting_deadline_;
  // The number of generations in a row that broke because a member timed out, although all members
  // came to the next one.
  int false_alarms_ = 0;
  std::string verdict_;
};

}  // namespace ringgrad
