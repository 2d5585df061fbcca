// Who belongs to a job whose ranks go and come (an elastic job), as the launcher sees it.
//
// The launcher starts and reaps processes; JobMembers decides who is a member. Its implementation
// registers itself (elastic/coordinator.h), so a launcher without it runs jobs of fixed ranks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace ringgrad {

// As torchrun's --nnodes MIN:MAX, of ranks.
struct ElasticRange {
  // With fewer ranks than min the job saves and ends; max 0: the job is not elastic.
  int min = 0;
  int max = 0;
  explicit operator bool() const { return max > 0; }
};

// True in a rank of an elastic job: its launcher passes it the descriptor of the page of members.
inline constexpr const char* kMembersDescriptor = "RINGGRAD_MEMBERSHIP_FD";
bool in_elastic_job();

// Thread-safety: none.
class JobMembers {
 public:
  virtual ~JobMembers() = default;

  // The file descriptor that ranks inherit.
  virtual int descriptor() const = 0;

  // A process is to be started for this slot, and then: it has been. It may come to the door in
  // between.
  virtual void starting(int slot) = 0;
  virtual void started(int slot, pid_t process) = 0;
  // Or it could not be: the slot is due again, some time.
  virtual void not_started(int slot) = 0;
  // The slot's process has ended, as waitpid() says. True: the job goes on without it, as `what`
  // says, unless it is empty; the slot's next process is due where the end was none of its own
  // will.
  virtual bool ended(int slot, int wait_status, const std::string& its_words,
                     std::string& what) = 0;
  // Forms the next generation as soon as all have come that are to come. Returns what there is to
  // say, mostly nothing.
  virtual std::string look() = 0;

  // Somebody wants another rank: it is started once there is a slot.
  virtual void ask_for_one_more() = 0;
  virtual std::optional<int> due() = 0;  // a slot for which a process is to be started now

  // Whoever is left needs no waiting for: the work is done, or lost, or saved by too few.
  virtual bool over() const = 0;
  // Too few are left, or none: why the job ends.
  virtual const std::string& verdict() const = 0;
};

// `timeout`: how long a rank may take to come to the door.
using MakeJobMembers = std::unique_ptr<JobMembers> (*)(ElasticRange range, int founders,
                                                       std::chrono::milliseconds timeout);
// Set before main by elastic/coordinator.cpp; nullptr in a program without.
inline constinit MakeJobMembers job_members_maker = nullptr;
// Throws Error where the range does not fit the founders, or this program has no elastic jobs.
std::unique_ptr<JobMembers> make_job_members(ElasticRange range, int founders,
                                             std::chrono::milliseconds timeout);

}  // namespace ringgrad
