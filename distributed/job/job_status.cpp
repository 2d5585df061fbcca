#include "ringgrad/distributed/job/job_status.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/fork.h"
#include "ringgrad/distributed/job/rank_environment.h"

namespace ringgrad {

const char* name(Phase phase) {
  constexpr const char* names[] = {
      "start-up", "the rendezvous", "set-up",     "data loading", "forward",
      "backward", "the optimizer",  "evaluation", "a checkpoint", "the end"};
  return names[static_cast<uint32_t>(phase) % std::size(names)];
}

namespace {

RankStatus& status_in(SharedMemory& memory, int rank) {
  return *std::launder(
      reinterpret_cast<RankStatus*>(memory.data() + kRankStatusBytes * static_cast<size_t>(rank)));
}

// Returns the launcher's memory, if there is a launcher and it has passed valid values.
RankStatus* status_from_launcher() {
  const std::string descriptor = launchers_variable("RINGGRAD_STATUS_FD");
  const std::string rank = variable("LOCAL_RANK");
  if (descriptor.empty() || rank.empty()) return nullptr;
  try {
    FileDescriptor copy(fcntl(parse_number<int>(descriptor).value_or(-1), F_DUPFD_CLOEXEC, 0));
    // It is never unmapped: a worker may report while exit() destroys static objects.
    static const auto& memory =
        *new const std::shared_ptr<SharedMemory>(SharedMemory::open(std::move(copy)));
    const int local_rank = parse_number<int>(rank).value_or(-1);
    if (local_rank < 0 || kRankStatusBytes * static_cast<size_t>(local_rank + 1) > memory->size())
      return nullptr;
    return &status_in(*memory, local_rank);
  } catch (const Error&) {
    return nullptr;
  }
}

std::mutex text_mutex;  // ranks may be threads of one process
BEFORE_MAIN(status_text, hold_over_fork(text_mutex));

RankStatus* launchers_status() {
  static RankStatus* const status = status_from_launcher();
  return status;
}

}  // namespace

RankStatus& own_status() {
  static RankStatus private_status{};
  // A child that is forked later says nothing in its parent's name.
  static const int first_of = forks;
  const bool is_rank = forks == first_of;
  return is_rank && launchers_status() != nullptr ? *launchers_status() : private_status;
}

void set_phase(Phase phase) { own_status().phase = phase; }

void set_step(int64_t step) { own_status().step = step + 1; }

void report_failure(const Failure& failure, bool noticed) noexcept {
  RankStatus& own = own_status();
  std::lock_guard lock(text_mutex);
  if (own.failed_at != 0) return;
  std::strncpy(own.text, failure.text.c_str(), RankStatus::kMaxText);
  own.failure = failure.kind;
  own.noticed = noticed;
  own.failed_at = std::chrono::steady_clock::now().time_since_epoch().count();
}

void report_waiting(const std::string& text) noexcept {
  RankStatus& own = own_status();
  std::lock_guard lock(text_mutex);
  std::strncpy(own.waiting, text.c_str(), RankStatus::kMaxText);
  ++own.waits;
}

bool launcher_knows_failure() {
  return launchers_status() != nullptr && launchers_status()->failed_at != 0 &&
         variable("RINGGRAD_LAUNCHER_PID") == std::to_string(getppid());
}

JobStatus::JobStatus(int local_size)
    : memory_(SharedMemory::create(kRankStatusBytes * static_cast<size_t>(local_size))) {}

const RankStatus& JobStatus::rank(int local_rank) const { return status_in(*memory_, local_rank); }

void JobStatus::clear(int local_rank) {
  std::memset(memory_->data() + kRankStatusBytes * static_cast<size_t>(local_rank), 0,
              kRankStatusBytes);
}

}  // namespace ringgrad
