// Splits groups: the ranks exchange their addresses through the parent, and connect anew.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"

namespace ringgrad {

// The groups that were split off one. They end with it. Otherwise a rank that waits in one of them
// for a stopped rank would learn of the failure by a timeout only.
struct GroupsSplitOff {
  std::vector<std::weak_ptr<ProcessGroup>> groups;
  std::string words_on_ranks;

  void operator()(const Failure& failure) const {
    for (const auto& handle : groups)
      if (const auto group = handle.lock())
        group->abort(str("the group from which this one was split off has ended: ", failure.text,
                         words_on_ranks),
                     failure.kind);
  }

  static void add(HostProcessGroup& parent, const std::shared_ptr<ProcessGroup>& group) {
    const auto turn = parent.take_turn();
    FailureDetector& ranks = parent.transport_->ranks();
    if (!ranks.on_failure) ranks.on_failure = GroupsSplitOff{{}, parent.options().words_on_ranks};
    GroupsSplitOff& own = *ranks.on_failure.target<GroupsSplitOff>();
    std::erase_if(own.groups, [](const auto& handle) { return handle.expired(); });
    own.groups.push_back(group);
    if (ranks.failure()) own(*ranks.failure());  // it came while this group connected
  }
};

namespace {

std::shared_ptr<ProcessGroup> split_group(HostProcessGroup& group, int color, int key) {
  const auto wishes = all_gather_values<int64_t>(group, {color, key});
  std::vector<int> members;  // ranks of the group, by their rank in the new one
  for (int r = 0; r < group.size(); ++r)
    if (wishes[2 * r] == color && color >= 0) members.push_back(r);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return wishes[2 * a + 1] < wishes[2 * b + 1]; });

  // All ranks of the group exchange addresses, also ranks that join another group or none.
  const auto exchange = [&](const std::string& value) {
    const std::vector<std::string> all = all_gather_texts(group, value);
    std::vector<std::string> texts;
    for (const int member : members) texts.push_back(all[member]);
    return texts;
  };
  if (members.empty()) {
    exchange("");
    return nullptr;
  }
  const auto me = std::find(members.begin(), members.end(), group.rank()) - members.begin();
  Connected connected = connect_ranks(static_cast<int>(me), static_cast<int>(members.size()),
                                      group.options().connect, exchange);
  HostOptions options = group.options();
  options.job = connected.job;
  options.machines = connected.machines;
  const std::vector<int> parents = std::move(options.job_ranks);
  options.job_ranks.clear();
  for (const int member : members)
    options.job_ranks.push_back(parents.empty() ? member : parents[member]);
  options.words_on_ranks = fmt::format("; this group's ranks from 0 on are the job's {}",
                                       fmt::join(options.job_ranks, ", "));
  std::shared_ptr<ProcessGroup> part =
      of_this_process(std::make_shared<HostProcessGroup>(std::move(connected.transport), options));
  GroupsSplitOff::add(group, part);
  return part;
}

BEFORE_MAIN(split_group, split_hosts = split_group);

}  // namespace
}  // namespace ringgrad
