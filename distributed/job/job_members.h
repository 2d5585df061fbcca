// JobMembers: the membership of an elastic job (a job whose ranks go and come), as the launcher
// sees it.
//
// The launcher starts and reaps processes; JobMembers decides which ranks are members. Its
// implementation registers itself (elastic/coordinator.h), so a launcher without it runs jobs of
// fixed ranks.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace ringgrad {

// The range of the number of ranks, like torchrun's --nnodes MIN:MAX.
struct ElasticRange {
  // With fewer ranks than min the job saves and ends. If max is 0 the job is not elastic.
  int min = 0;
  int max = 0;
  explicit operator bool() const { return max > 0; }
};

// in_elastic_job() returns true in a rank of an elastic job. The launcher passes it the descriptor
// of the membership page in this variable.
inline constexpr const char* kMembersDescriptor = "RINGGRAD_MEMBERSHIP_FD";
bool in_elastic_job();

// Thread-safety: none.
class JobMembers {
 public:
  virtual ~JobMembers() = default;

  // Returns the file descriptor that ranks inherit.
  virtual int descriptor() const = 0;

  // The launcher calls starting() before it starts a process for this slot, and started() after.
  // The process may ask to join in between.
  virtual void starting(int slot) = 0;
  virtual void started(int slot, pid_t process) = 0;
  // Called instead of started() if the start failed. The slot becomes due again.
  virtual void not_started(int slot) = 0;
  // The slot's process has ended with this status of waitpid(). Returns true if the job goes on
  // without it; `what` is then a message for the user, or empty. The slot becomes due again if the
  // process did not end by its own decision.
  virtual bool ended(int slot, int wait_status, const std::string& its_words,
                     std::string& what) = 0;
  // Forms the next generation if all ranks that it needs have come. Returns a message for the
  // user, mostly an empty one.
  virtual std::string look() = 0;

  // Asks for one more rank. It is started once there is a slot.
  virtual void ask_for_one_more() = 0;
  // Returns a slot for which the launcher must start a process now, if there is one.
  virtual std::optional<int> due() = 0;

  // Returns true if the launcher need not wait for the ranks that are left: the work is done, or
  // lost, or saved because too few ranks were left.
  virtual bool over() const = 0;
  // Says why the job ends early; "" if it does not.
  virtual const std::string& verdict() const = 0;
};

// `timeout` is the time that a rank may take to wait for the next generation.
using MakeJobMembers = std::unique_ptr<JobMembers> (*)(ElasticRange range, int founders,
                                                       std::chrono::milliseconds timeout);
// Set before main by elastic/coordinator.cpp; nullptr in a program without it.
inline constinit MakeJobMembers job_members_maker = nullptr;
// Throws Error if the number of founders (the first ranks) is outside the range, or this program
// has no elastic jobs.
std::unique_ptr<JobMembers> make_job_members(ElasticRange range, int founders,
                                             std::chrono::milliseconds timeout);

}  // namespace ringgrad
