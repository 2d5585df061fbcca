#include "ringgrad/distributed/elastic/own_seat.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/job/job_members.h"

namespace ringgrad {
namespace {

constexpr std::chrono::milliseconds kLook{1};  // between looks at the page

std::string joined(const std::vector<std::string>& lines) {
  std::string text = "elastic 1\n";  // what the page means; and so it is never empty
  for (const std::string& line : lines) text += line + '\n';
  return text.substr(0, MembershipPage::kMaxWork);
}

[[noreturn]] void throw_left_behind() {
  throw LeftBehindError(
      "elastic: this rank was left behind: it did not come when the others formed a new group, "
      "so nothing that it does counts any more");
}

}  // namespace

OwnSeat::OwnSeat()
    : membership_(Membership::open(parse_number<int>(variable(kMembersDescriptor)).value_or(-1))),
      index_(parse_number<int>(variable("LOCAL_RANK")).value_or(-1)) {
  CHECK_AS(DistributedError, index_ >= 0 && index_ < membership_.seats(), "elastic: LOCAL_RANK is ",
           variable("LOCAL_RANK"), ", and the job has ", membership_.seats(), " seats");
}

void OwnSeat::check_fit(const std::vector<std::string>& work) const {
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

void OwnSeat::say_work(const std::vector<std::string>& work) const {
  MembershipPage& page = membership_.page();
  const std::string text = joined(work);
  if (page.work_bytes != 0) return;
  std::memcpy(page.work, text.data(), text.size());
  page.work_bytes = static_cast<uint32_t>(text.size());
}

std::optional<Place> OwnSeat::await_generation(bool timed_out) {
  Seat& seat = own();
  const MembershipPage& page = membership_.page();
  seat.timed_out = timed_out;
  for (Standing before = seat.standing; before != Standing::Out;)
    if (seat.standing.compare_exchange_weak(before, Standing::AtDoor)) break;
  for (;; std::this_thread::sleep_for(kLook)) {
    if (page.finished) return {};
    const Standing standing = seat.standing;
    if (standing == Standing::Out) throw_left_behind();
    if (standing == Standing::AtDoor || seat.member_of == seen_) continue;
    // All that is read here stands until this rank comes to the door again, or is left behind.
    seen_ = seat.member_of;
    return Place{seen_, seat.rank, page.size, page.last};
  }
}

std::vector<std::string> OwnSeat::exchange(const Place& place, const std::string& address,
                                           std::chrono::milliseconds timeout) const {
  ASSERT(address.size() <= Seat::kMaxAddress);
  std::memcpy(own().address, address.data(), address.size());
  own().address_bytes = static_cast<uint32_t>(address.size());
  own().address_of = place.generation;
  const auto deadline = Deadline::after(timeout);
  for (;; std::this_thread::sleep_for(kLook)) {
    check(place);
    std::vector<std::string> addresses(static_cast<size_t>(place.size));
    int come = 0;
    for (int s = 0; s < membership_.seats(); ++s) {
      const Seat& seat = membership_.seat(s);
      if (seat.member_of != place.generation || seat.address_of != place.generation) continue;
      addresses[static_cast<size_t>(seat.rank)] = std::string(seat.address, seat.address_bytes);
      ++come;
    }
    if (come == place.size) return addresses;
    CHECK_AS(TimeoutError, !deadline.passed(), "elastic: ", place.size - come, " of ", place.size,
             " ranks have not come to form generation ", place.generation, " within ",
             std::chrono::duration<double>(timeout).count(), " s");
  }
}

void OwnSeat::check(const Place& place) const {
  if (membership_.page().over >= place.generation)
    throw GroupChanged(str("elastic: generation ", place.generation, " is over"));
}

OwnSeat::WritePermit::WritePermit(const OwnSeat& seat) : seat_(seat.own()) {
  // Then the look: the launcher does both in the other order, so one of the two sees the other.
  seat_.writing = true;
  if (seat_.standing != Standing::Out) return;
  seat_.writing = false;
  throw_left_behind();
}

}  // namespace ringgrad
