#include "ringgrad/distributed/elastic/elastic_member.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <thread>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/job/job_members.h"

namespace ringgrad {
namespace {

constexpr std::chrono::milliseconds kLook{1};  // the interval between two reads of the page

std::string joined(const std::vector<std::string>& lines) {
  std::string text = "elastic 1\n";  // the version of this text, which is thus never empty
  for (const std::string& line : lines) text += line + '\n';
  return text.substr(0, MembershipPage::kMaxWork);
}

[[noreturn]] void throw_left_behind() {
  throw LeftBehindError(
      "elastic: this rank was left behind: it did not come when the others formed a new group, "
      "so nothing that it does counts any more");
}

}  // namespace

ElasticMember::ElasticMember()
    : membership_(Membership::open(parse_number<int>(variable(kMembersDescriptor)).value_or(-1))),
      index_(parse_number<int>(variable("LOCAL_RANK")).value_or(-1)) {
  CHECK_AS(DistributedError, index_ >= 0 && index_ < membership_.slots(), "elastic: LOCAL_RANK is ",
           variable("LOCAL_RANK"), ", and the job has ", membership_.slots(), " slots");
}

void ElasticMember::check_fit(const std::vector<std::string>& work) const {
  const MembershipPage& page = membership_.page();
  if (page.generation == 0) return;
  while (page.work_bytes == 0 && !page.finished) std::this_thread::sleep_for(kLook);
  const std::string ours = joined(work);
  const std::string theirs(page.work, page.work_bytes);
  if (page.finished || ours == theirs) return;
  TextInput our_lines(ours);
  TextInput their_lines(theirs);
  std::string our_line;
  std::string their_line;
  do {
    if (!std::getline(our_lines, our_line)) our_line = "nothing";
    if (!std::getline(their_lines, their_line)) their_line = "nothing";
  } while (our_line == their_line);
  throw OutOfStepError(str(
      "elastic: a rank that came to join has other work than the job, which goes on without it: ",
      our_line, " there, ", their_line, " in the job"));
}

void ElasticMember::publish_work(const std::vector<std::string>& work) const {
  MembershipPage& page = membership_.page();
  const std::string text = joined(work);
  if (page.work_bytes != 0) return;
  std::memcpy(page.work, text.data(), text.size());
  page.work_bytes = static_cast<uint32_t>(text.size());
}

std::optional<Place> ElasticMember::await_generation(bool timed_out) {
  MemberSlot& slot = own();
  const MembershipPage& page = membership_.page();
  slot.timed_out = timed_out;
  for (MemberState before = slot.state; before != MemberState::Removed;)
    if (slot.state.compare_exchange_weak(before, MemberState::Waiting)) break;
  for (;; std::this_thread::sleep_for(kLook)) {
    if (page.finished) return {};
    const MemberState state = slot.state;
    if (state == MemberState::Removed) throw_left_behind();
    if (state == MemberState::Waiting || slot.member_of == seen_) continue;
    // These values stay as they are until this rank waits again, or is left behind.
    seen_ = slot.member_of;
    return Place{seen_, slot.rank, page.size, page.last};
  }
}

std::vector<std::string> ElasticMember::exchange(const Place& place, const std::string& address,
                                                 std::chrono::milliseconds timeout) const {
  ASSERT(address.size() <= MemberSlot::kMaxAddress);
  std::memcpy(own().address, address.data(), address.size());
  own().address_bytes = static_cast<uint32_t>(address.size());
  own().address_of = place.generation;
  const auto deadline = Deadline::after(timeout);
  for (;; std::this_thread::sleep_for(kLook)) {
    std::map<int, std::string> addresses;  // by rank
    for (int s = 0; s < membership_.slots(); ++s) {
      const MemberSlot& slot = membership_.slot(s);
      if (slot.member_of == place.generation && slot.address_of == place.generation)
        addresses[slot.rank] = std::string(slot.address, slot.address_bytes);
    }
    // The launcher may have left this rank behind meanwhile, and have numbered the others anew, one
    // field after the other. It says before that this generation is over.
    check(place);
    const int come = static_cast<int>(addresses.size());
    if (come == place.size && addresses.rbegin()->first < place.size) {
      std::vector<std::string> by_rank;
      for (auto& [rank, address_of_rank] : addresses) by_rank.push_back(std::move(address_of_rank));
      return by_rank;
    }
    CHECK_AS(TimeoutError, !deadline.passed(), "elastic: ", place.size - come, " of ", place.size,
             " ranks have not come to form generation ", place.generation, " within ",
             std::chrono::duration<double>(timeout).count(), " s");
  }
}

void ElasticMember::check(const Place& place) const {
  if (membership_.page().over >= place.generation)
    throw GroupChanged(str("elastic: generation ", place.generation, " is over"));
}

ElasticMember::WritePermit::WritePermit(const ElasticMember& member) : slot_(member.own()) {
  // The rank first says that it writes, then checks whether it was left behind. The launcher does
  // both in the opposite order, so at least one of them sees the other.
  slot_.writing = true;
  if (slot_.state != MemberState::Removed) return;
  slot_.writing = false;
  throw_left_behind();
}

}  // namespace ringgrad
