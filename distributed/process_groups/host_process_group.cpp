#include "ringgrad/distributed/process_groups/host_process_group.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/collectives/collectives.h"
#include "ringgrad/distributed/collectives/ring.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/process_groups/message_collectives.h"

namespace ringgrad {

struct HostProcessGroup::QueuedCollective final : PendingWork {
  explicit QueuedCollective(Collective c) : collective(std::move(c)) {}
  Collective collective;
};

HostProcessGroup::HostProcessGroup(std::unique_ptr<Transport> transport, const HostOptions& options)
    : ProcessGroup(transport->rank(), transport->size()),
      options_(options),
      exceptions_at_birth_(std::uncaught_exceptions()),
      transport_(std::move(transport)),
      wakeup_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK_AS(DistributedError, wakeup_, "process group: eventfd: ", std::strerror(errno));
  CHECK(options_.algorithm != AllReduceAlgorithm::SharedMemory || transport_->shares_memory(),
        "process group: the ranks do not share memory, so algorithm SharedMemory cannot be used");
  CHECK(options_.checksums != Checksums::On || payload_checksum,
        "process group: checksums are asked for, but this program is linked without them; link all "
        "of ringgrad::ringgrad, or set RINGGRAD_CHECKSUMS to auto or off");
  CHECK(options_.segment_bytes > 0, "process group: segments of 0 bytes");
  find_shared_memory();
  worker_ = std::thread([this] { serve(); });
}

// Sums go through shared memory where all ranks have it; and where each of several machines has
// equally many ranks, so that each of a machine's has a partner on every other.
void HostProcessGroup::find_shared_memory() {
  if (options_.algorithm != AllReduceAlgorithm::Auto &&
      options_.algorithm != AllReduceAlgorithm::SharedMemory)
    return;
  const auto machines = transport_->shares_memory() ? std::vector<int>(static_cast<size_t>(size()))
                                                    : options_.machines;
  if (machines.empty()) return;
  std::map<int, std::vector<int>> ranks_on;  // by machine
  for (int r = 0; r < size(); ++r) ranks_on[machines[r]].push_back(r);
  const std::vector<int>& here = ranks_on[machines[rank()]];
  const auto own_place = std::find(here.begin(), here.end(), rank()) - here.begin();
  if (ranks_on.size() > 1)
    for (const auto& [machine, ranks] : ranks_on) {
      if (ranks.size() != here.size() || here.size() == 1) return across_.clear();
      across_.push_back(ranks[own_place]);
    }
  shared_.emplace(*transport_, here);
}

HostProcessGroup::~HostProcessGroup() {
  std::unique_lock lock(jobs_mutex_);
  if (std::uncaught_exceptions() > exceptions_at_birth_)
    transport_->interrupt({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  else if (!jobs_.empty() || transport_->mailbox().under_way() > 0)
    transport_->interrupt(
        {FailureKind::Died, str("rank ", rank(), " left the group with collectives under way")});
  stop_ = true;
  lock.unlock();
  wake();
  worker_.join();
}

std::string HostProcessGroup::backend() const {
  if (shared_ && across_.empty() && size() > 1) return "shared memory";
  std::string channels;
  for (int r = 0; r < size(); ++r) {
    const bool sends_to =
        across_.empty() || std::find(across_.begin(), across_.end(), r) != across_.end();
    if (r == rank() || !sends_to) continue;
    const std::string channel = transport_->streams().channel(r).kind().name;
    if (channels.find(channel) == std::string::npos)
      channels += (channels.empty() ? "" : "+") + channel;
  }
  const std::string ring = channels.empty() ? "ring" : "ring over " + channels;
  return across_.empty() ? ring : "shared memory, and " + ring;
}

void HostProcessGroup::abort(const std::string& reason, FailureKind kind) {
  transport_->interrupt({kind, reason});
  wake();
}

// Who is in a collective will say it.
std::optional<Failure> HostProcessGroup::failure() {
  const std::unique_lock lock(transport_mutex_, std::try_to_lock);
  if (!lock) return {};
  if (failure_) return failure_;
  std::optional<Failure> heard = transport_->ranks().failure();
  if (heard) heard->text += words_on_ranks();
  return heard;
}

// -- who executes ---------------------------------------------------------------------------------

void HostProcessGroup::wake() {
  eventfd_write(wakeup_.get(), 1);
  if (moving_letters_) transport_->ring();
}

// A blocking call is executed by its caller: waking the worker and being woken by it would cost
// more than a small all-reduce does.
std::unique_lock<std::mutex> HostProcessGroup::take_turn() {
  ++demand_;
  if (moving_letters_) transport_->ring();
  std::unique_lock lock(jobs_mutex_);
  no_jobs_.wait(lock, [&] { return jobs_.empty(); });
  std::unique_lock turn(transport_mutex_);
  --demand_;
  transport_->set_spinning(true);
  return turn;
}

Work HostProcessGroup::issue(Collective collective) {
  if (collective.operation == Operation::SendRecv) return exchange_letter(std::move(collective));
  if (reduces(collective.operation))
    (void)reduction(name(collective.operation), collective.input.dtype(), collective.reduce_op);
  if (!collective.options.async) {
    const auto turn = take_turn();
    execute(collective);
    return {};
  }
  auto job = std::make_shared<QueuedCollective>(std::move(collective));
  {
    std::lock_guard lock(jobs_mutex_);
    jobs_.push_back(job);
    ++demand_;
  }
  wake();
  return Work(std::move(job));
}

// The worker executes what is queued, and while nothing is, listens to the other ranks.
void HostProcessGroup::serve() {
  for (;;) {
    std::shared_ptr<QueuedCollective> job;
    {
      std::lock_guard lock(jobs_mutex_);
      if (!jobs_.empty())
        job = jobs_.front();
      else if (stop_ && transport_->mailbox().under_way() == 0)
        return;
    }
    if (job == nullptr) {
      if (transport_->mailbox().under_way() == 0) {
        listen();
      } else {
        std::this_thread::yield();  // to who wants the transport
        std::lock_guard lock(transport_mutex_);
        move_letters(/*spinning=*/false, [this] { return transport_->mailbox().under_way() == 0; });
      }
      continue;
    }
    std::exception_ptr error;
    try {
      std::lock_guard lock(transport_mutex_);
      transport_->set_spinning(false);  // the core belongs to this rank's computation
      execute(job->collective);
    } catch (...) {
      error = std::current_exception();
    }
    {
      std::lock_guard lock(jobs_mutex_);
      jobs_.pop_front();
      --demand_;
    }
    job->collective = {};  // lets the tensors go
    job->end(error);
    no_jobs_.notify_all();
  }
}

void HostProcessGroup::listen() {
  std::vector<pollfd> watched{{wakeup_.get(), POLLIN, 0}};
  {
    std::lock_guard lock(transport_mutex_);
    try {
      transport_->ranks().attend();
      transport_->ranks().watch(watched);
    } catch (...) {  // the group has failed, and the next collective will say so
    }
  }
  poll(watched.data(), watched.size(), -1);
  eventfd_t count;
  eventfd_read(wakeup_.get(), &count);
}

// -- what is executed -----------------------------------------------------------------------------

Frame HostProcessGroup::next_frame(const Collective& c) {
  Frame frame = frame_of(c);
  frame.job = options_.job;
  frame.algorithm = static_cast<uint8_t>(options_.algorithm);
  frame.sequence = ++sequence_;
  return frame;
}

std::chrono::milliseconds HostProcessGroup::timeout_of(const Collective& c) const {
  return c.options.timeout.count() > 0 ? c.options.timeout : options_.timeout;
}

// "; this group's ranks 0, 1 are the job's 4, 5"
std::string HostProcessGroup::words_on_ranks() const {
  if (options_.job_ranks.empty()) return "";
  std::vector<int> own(options_.job_ranks.size());
  std::iota(own.begin(), own.end(), 0);
  return fmt::format("; this group's ranks {} are the job's {}", fmt::join(own, ", "),
                     fmt::join(options_.job_ranks, ", "));
}

std::shared_ptr<Storage> HostProcessGroup::execute(const Collective& collective) {
  if (failure_) throw_failure(*failure_);
  const Frame frame = next_frame(collective);
  transport_->set_timeout(timeout_of(collective));
  if (frame.step >= 0) set_step(frame.step);
  if (frame.bucket >= 0) own_status().bucket = frame.bucket + 1;
  try {
    std::shared_ptr<Storage> storage;
    const bool reduces_all = collective.operation == Operation::AllReduce;
    if (reduces_all && shared_ &&
        (across_.empty() || !is_small(bytes_of(collective.output), size()))) {
      run_in_shared_memory(collective, frame);
    } else {
      transport_->enter(frame, collective.options.about);
      Messenger messages(*transport_, frame, options_.checksums, {}, options_.on_send);
      if (collective.operation == Operation::AllocateShared) {
        storage = shared_->allocate(frame.count);
      } else if (!reduces_all) {
        run_by_messages(collective, frame, messages, options_.segment_bytes);
      } else {
        const ReduceFunctions& how = reduction("all_reduce", frame.dtype, collective.reduce_op);
        const AllReduceAlgorithm way = options_.algorithm;
        const auto x = bytes_of(collective.output);
        if (way == AllReduceAlgorithm::Exchange ||
            (way == AllReduceAlgorithm::Auto && is_small(x, size())))
          exchange_all_reduce(messages, x.data(), frame.count, how);
        else if (way == AllReduceAlgorithm::GatherBroadcast)
          gather_broadcast_all_reduce(messages, x.data(), frame.count, how);
        else
          ring_all_reduce(messages, x.data(), frame.count, how,
                          way == AllReduceAlgorithm::Ring ? kWholeChunk : options_.segment_bytes);
      }
    }
    transport_->ranks().leave_collective();
    deliver(collective);
    return storage;
  } catch (const std::exception&) {
    const Failure failure = give_up(describe(collective));
    if (!is_noticed(std::current_exception())) throw;
    throw_failure(failure);
  }
}

// In the handler of what has ended the group: tells all ranks, and whoever waits for a letter.
Failure HostProcessGroup::give_up(const std::string& during) {
  Failure failure = failure_of(std::current_exception());
  transport_->ranks().abort(failure);
  failure.text = str(during, ": ", failure.text, words_on_ranks());
  failure_ = failure;
  report_failure(failure, is_noticed(std::current_exception()));
  try {
    throw_failure(failure);
  } catch (...) {
    transport_->mailbox().fail_all(std::current_exception());
  }
  return failure;
}

void HostProcessGroup::run_in_shared_memory(const Collective& c, const Frame& frame) {
  const ReduceFunctions& how = reduction("all_reduce", frame.dtype, c.reduce_op);
  if (across_.empty())
    return shared_->run(frame, c.options.about, c.output.raw_data(), frame.count, how);
  Messenger messages(*transport_, frame, options_.checksums, across_, options_.on_send);
  const auto across = [&](void* wide, size_t count, const ReduceFunctions& on_wide) {
    ring_all_reduce(messages, wide, count, on_wide, options_.segment_bytes);
  };
  shared_->run(frame, c.options.about, c.output.raw_data(), frame.count, how, across);
}

std::shared_ptr<Storage> HostProcessGroup::allocate_shared(size_t bytes, Device device) {
  CHECK_AS(DeviceError, reaches(device), "allocate_shared: on ", device,
           ", but this is a group of CPU ranks");
  check_process("allocate_shared");
  if (!shared_) return std::make_shared<Storage>(bytes, device);
  Collective collective{Operation::AllocateShared, {}, {}};
  collective.stands_for = frame_of(collective);
  set_shape(*collective.stands_for, std::array{static_cast<int64_t>(bytes)});
  const auto turn = take_turn();
  return execute(collective);
}

// -- groups out of groups: the ranks exchange their addresses through the parent, and connect anew

std::shared_ptr<ProcessGroup> HostProcessGroup::split(int color, int key) {
  const auto wishes = all_gather_values<int64_t>(*this, {color, key});
  std::vector<int> members;  // ranks of this group, by their rank in the new one
  for (int r = 0; r < size(); ++r)
    if (wishes[2 * r] == color && color >= 0) members.push_back(r);
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return wishes[2 * a + 1] < wishes[2 * b + 1]; });

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
  Connected connected = connect_ranks(static_cast<int>(me), static_cast<int>(members.size()),
                                      options_.connect, exchange);
  HostOptions options = options_;
  options.job = connected.job;
  options.machines = connected.machines;
  options.job_ranks.clear();
  for (const int member : members)
    options.job_ranks.push_back(options_.job_ranks.empty() ? member : options_.job_ranks[member]);
  return of_this_process(
      std::make_shared<HostProcessGroup>(std::move(connected.transport), options));
}

}  // namespace ringgrad
