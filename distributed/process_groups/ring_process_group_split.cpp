// Groups out of groups: the ranks of the parent exchange their addresses through it, and connect anew.
#include <algorithm>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/process_groups/ring_process_group.h"

namespace ringgrad {
namespace {

constexpr int64_t kMaxText = 1024;

// Every rank's text, by rank.
std::vector<std::string> all_gather_texts(ProcessGroup& group, const std::string& text) {
  ASSERT(text.size() < kMaxText);
  const Tensor own = zeros({kMaxText}, {.dtype = DType::UInt8});
  const Tensor all = empty({group.size(), kMaxText}, {.dtype = DType::UInt8});
  std::memcpy(own.raw_data(), text.data(), text.size());
  group.all_gather(all, own).wait();
  std::vector<std::string> texts;
  for (int r = 0; r < group.size(); ++r) {
    const auto* begin = static_cast<const char*>(all.raw_data()) + r * kMaxText;
    texts.emplace_back(begin, strnlen(begin, kMaxText));
  }
  return texts;
}

}  // namespace

std::shared_ptr<ProcessGroup> RingProcessGroup::split(int color, int key) {
  const auto wishes = all_gather_values<int64_t>(*this, {color, key});
  std::vector<int> members;  // ranks of this group, by their rank in the new one
  for (int r = 0; r < size(); ++r)
    if (wishes[2 * r] == color && color >= 0) members.push_back(r);
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return wishes[2 * a + 1] < wishes[2 * b + 1]; });

  // All ranks of this group exchange addresses, also those that join no group or another one.
  const auto exchange = [&](const std::string& value) {
    const std::vector<std::string> all = all_gather_texts(*this, value);
    std::vector<std::string> texts;
    for (const int member : members) texts.push_back(all[member]);
    return texts;
  };
  if (members.empty()) {
    exchange("");
    return nullptr;
  }
  const auto me = std::find(members.begin(), members.end(), rank()) - members.begin();
  Connected connected =
      connect_ranks(static_cast<int>(me), static_cast<int>(members.size()), options_.connect, exchange);
  RingOptions options = options_;
  options.job = connected.job;
  options.job_ranks.clear();
  for (const int member : members)
    options.job_ranks.push_back(options_.job_ranks.empty() ? member : options_.job_ranks[member]);
  return std::make_shared<RingProcessGroup>(std::move(connected.transport), options);
}

}  // namespace ringgrad
