#include "ringgrad/distributed/elastic/coordinator.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/failure.h"

namespace ringgrad {
namespace {

constexpr int kMaxRestarts = 100;  // per job; a job whose ranks are killed more often has a fault
constexpr int kMaxFalseAlarms = 5;
// Counted in timeouts. A slow disk is no reason to give a rank up (train's ranks do the same).
constexpr int kLongTimeouts = 10;
// Once a member has reported a timeout, members still absent after this grace period are taken to
// be the missing ones.
constexpr std::chrono::milliseconds kGrace{2000};

std::unique_ptr<JobMembers> make(ElasticRange range, int founders,
                                 std::chrono::milliseconds timeout) {
  return std::make_unique<Coordinator>(range, founders, timeout);
}
BEFORE_MAIN(coordinator, job_members_maker = make);

}  // namespace

Coordinator::Coordinator(ElasticRange range, int founders, std::chrono::milliseconds timeout)
    : range_(range),
      founders_(founders),
      timeout_(timeout),
      membership_(Membership::create(range.max)),
      entries_(static_cast<size_t>(range.max)) {
  CHECK(1 <= range.min && range.min <= founders && founders <= range.max, "launch: ", founders,
        " ranks in an elastic job of ", range.min, " to ", range.max,
        ", expected a number between");
}

bool Coordinator::is_member(int index) const {
  const MemberState state = slot(index).state;
  return founded() && entries_[index].process > 0 && slot(index).member_of == page().generation &&
         (state == MemberState::Member || state == MemberState::Waiting);
}

bool Coordinator::over() const {
  if (!founded()) return !verdict_.empty();
  for (int s = 0; s < range_.max; ++s)
    if (is_member(s)) return false;
  return true;
}

// -- processes ------------------------------------------------------------------------------------

void Coordinator::starting(int index) {
  entries_[index] = {};
  MemberSlot& own = slot(index);
  own.member_of = own.address_of = 0;
  own.writing = own.timed_out = false;
  own.state = MemberState::Starting;
}

void Coordinator::not_started(int index) {
  slot(index).state = MemberState::Empty;
  if (++restarts_ <= kMaxRestarts) due_.push_back(index);
}

bool Coordinator::ended(int index, int wait_status, const std::string& its_words,
                        std::string& what) {
  const bool killed = WIFSIGNALED(wait_status);
  const bool was_member = is_member(index);
  const bool joined = entries_[index].joined;
  const bool left_behind = slot(index).state == MemberState::Removed;
  const int signal = killed ? WTERMSIG(wait_status) : 0;
  const int code = killed ? 0 : WEXITSTATUS(wait_status);
  entries_[index].process = 0;
  slot(index).state = MemberState::Empty;
  if (page().finished) return killed;
  if (page().last || !verdict_.empty()) return false;
  // A founder that was killed is started again, at most as often as there are founders.
  if (!founded() && (!killed || signal == SIGTERM || restarts_ >= founders_)) return false;
  if (was_member) {
    // The member failed by itself, and the others would fail in the same way.
    if (!killed && code != kRankDied) return false;
    lost_one_ = true;
    if (over()) return false;  // the last member has died, and the state with it
  }
  const bool again = (killed && signal != SIGTERM) || left_behind || (joined && code == kRankDied);
  if (again && ++restarts_ <= kMaxRestarts) due_.push_back(index);
  if (killed)
    what = str("was killed by signal ", signal, " (", strsignal(signal),
               "); the job goes on without it");
  else if (!joined)
    what = str("cannot join",
               its_words.empty() ? str(": it ended with exit code ", code) : ": " + its_words);
  return true;
}

std::optional<int> Coordinator::due() {
  if (page().finished || page().last || !verdict_.empty()) return {};
  if (founded() && due_.empty() && asked_for_ > 0)
    for (int s = 0; s < range_.max; ++s)
      if (entries_[s].process == 0) {
        --asked_for_;
        due_.push_back(s);
        break;
      }
  if (due_.empty()) return {};
  const int index = due_.front();
  due_.pop_front();
  return index;
}

// -- generations ----------------------------------------------------------------------------------

std::string Coordinator::look() {
  std::vector<int> present;
  std::vector<int> absent;
  std::vector<int> newcomers;
  int on_their_way = static_cast<int>(due_.size());
  for (int s = 0; s < range_.max; ++s) {
    const MemberState state = slot(s).state;
    if (is_member(s))
      (state == MemberState::Waiting ? present : absent).push_back(s);
    else if (entries_[s].process > 0 && state == MemberState::Waiting)
      newcomers.push_back(s);
    else if (entries_[s].process > 0 && state == MemberState::Starting)
      ++on_their_way;
  }
  if (!founded()) return look_at_founders(newcomers);
  if (page().finished || page().last || !verdict_.empty()) return "";

  const bool broken = lost_one_ || !present.empty();
  if (!broken && newcomers.empty()) return "";
  // Asks all members to come. A member comes when its step is done, at the latest.
  page().over = page().generation.load();
  if (!broken) return "";
  const bool missed =
      std::any_of(present.begin(), present.end(), [&](int s) { return slot(s).timed_out.load(); });
  if (!deadline_) {
    deadline_ = Deadline::after(timeout_);
    long_deadline_ = Deadline::after(kLongTimeouts * timeout_);
  }
  if (missed) deadline_ = deadline_->but_at_most(kGrace);
  const bool writes =
      std::any_of(absent.begin(), absent.end(), [&](int s) { return slot(s).writing.load(); });
  const bool may_take_long = present.empty() || (writes && !missed);
  if (!absent.empty() && !(may_take_long ? long_deadline_ : deadline_)->passed()) return "";
  std::string said;
  for (const int s : absent) {
    if (leave_behind(s)) ++on_their_way;
    if (slot(s).state != MemberState::Removed) return said;  // the rank has just come
    said += str("[rank ", s, "] does not come, and is left behind\n");
  }
  if (present.empty()) {
    verdict_ = "no rank is left that has the state of the training\n";
    return said;
  }
  if (static_cast<int>(present.size() + newcomers.size()) < range_.min && on_their_way > 0) {
    if (!starting_deadline_) starting_deadline_ = Deadline::after(timeout_);
    if (!starting_deadline_->passed()) return said;
  }
  false_alarms_ = missed && absent.empty() && !lost_one_ ? false_alarms_ + 1 : 0;
  if (false_alarms_ < kMaxFalseAlarms) return said + form(std::move(present), newcomers);
  // One member saves the state. Alone it can miss no other rank.
  page().last = true;
  verdict_ = "the ranks miss each other again and again, and yet all of them live\n";
  const int saves = *std::min_element(present.begin(), present.end(),
                                      [&](int a, int b) { return slot(a).rank < slot(b).rank; });
  for (const int s : present)
    if (s != saves) slot(s).state = MemberState::Removed;
  return said + form({saves}, {});
}

// Forms generation 1 when all founders wait, or when time is up and enough do. A founder that comes
// later joins later.
std::string Coordinator::look_at_founders(const std::vector<int>& come) {
  const int count = static_cast<int>(come.size());
  if (count == 0 || !verdict_.empty()) return "";
  if (!deadline_) deadline_ = Deadline::after(kLongTimeouts * timeout_);
  if (count < founders_ && !deadline_->passed()) return "";
  if (count >= range_.min)
    return (count < founders_ ? str("the job begins with ", count, " of ", founders_, " ranks\n")
                              : "") +
           form({}, come);
  verdict_ = str("only ", count, " of ", founders_, " ranks have come within ",
                 std::chrono::duration<double>(kLongTimeouts * timeout_).count(),
                 " s, and the job needs ", range_.min, "\n");
  return "";
}

// Returns true if the rank's process was killed and will be started again. A rank that is writing
// (a checkpoint, say) must be killed: it would go on writing when it wakes.
bool Coordinator::leave_behind(int index) {
  MemberState member = MemberState::Member;
  const bool out = slot(index).state.compare_exchange_strong(member, MemberState::Removed);
  return out && slot(index).writing && kill(entries_[index].process, SIGKILL) == 0;
}

// Forms a generation. Members come first, in their order, so rank 0 has the state and writes the
// files.
std::string Coordinator::form(std::vector<int> ranks, const std::vector<int>& newcomers) {
  std::sort(ranks.begin(), ranks.end(), [&](int a, int b) { return slot(a).rank < slot(b).rank; });
  ranks.insert(ranks.end(), newcomers.begin(), newcomers.end());
  const uint64_t generation = page().generation + 1;
  page().size = static_cast<int>(ranks.size());
  if (static_cast<int>(ranks.size()) < range_.min && !page().last) {
    page().last = true;
    verdict_ = str("only ", ranks.size(), ranks.size() == 1 ? " rank is" : " ranks are",
                   " left, of at least ", range_.min, "\n");
  }
  std::string names;
  for (size_t r = 0; r < ranks.size(); ++r) {
    slot(ranks[r]).rank = static_cast<int32_t>(r);
    slot(ranks[r]).member_of = generation;
    entries_[ranks[r]].joined = true;
    names += str(r == 0 ? "" : ", ", ranks[r]);
  }
  page().generation = generation;
  // This comes last: a rank reads the rest once it sees this state.
  for (const int s : ranks) slot(s).state = MemberState::Member;
  lost_one_ = false;
  deadline_.reset();
  starting_deadline_.reset();
  return generation == 1 ? "" : str("generation ", generation, ": ranks ", names, "\n");
}

}  // namespace ringgrad
