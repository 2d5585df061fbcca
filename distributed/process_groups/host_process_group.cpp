#include "ringgrad/distributed/process_groups/host_process_group.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <exception>

#include "ringgrad/core/base/check.h"
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
      wakeup_(new_doorbell()) {
  if (find_group_memory) memory_ = find_group_memory(*transport_, options_);
  if (make_point_to_point) point_to_point_ = make_point_to_point(*this);
  CHECK(options_.algorithm != AllReduceAlgorithm::SharedMemory || memory_,
        "process group: the ranks do not share memory, so algorithm SharedMemory cannot be used");
  CHECK(options_.checksums != Checksums::On || payload_checksum,
        "process group: checksums are asked for, but this program is linked without them; link all "
        "of ringgrad::ringgrad, or set RINGGRAD_CHECKSUMS to auto or off");
  CHECK(options_.segment_bytes > 0, "process group: segments of 0 bytes");
  worker_ = std::thread([this] { serve(); });
}

HostProcessGroup::~HostProcessGroup() {
  std::unique_lock lock(jobs_mutex_);
  if (std::uncaught_exceptions() > exceptions_at_birth_)
    transport_->interrupt({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  else if (!jobs_.empty() || messages_under_way())
    transport_->interrupt(
        {FailureKind::Died, str("rank ", rank(), " left the group with collectives under way")});
  stop_ = true;
  lock.unlock();
  wake();
  worker_.join();
}

std::string ring_over(Transport& transport, const std::vector<int>& ranks) {
  std::string channels;
  for (int r = 0; r < transport.size(); ++r) {
    const bool sends_to = ranks.empty() || std::ranges::count(ranks, r) > 0;
    if (r == transport.rank() || !sends_to) continue;
    const std::string channel = transport.streams().channel(r).kind().name;
    if (channels.find(channel) == std::string::npos)
      channels += (channels.empty() ? "" : "+") + channel;
  }
  return channels.empty() ? "ring" : "ring over " + channels;
}

std::string HostProcessGroup::backend() const {
  return memory_ ? memory_->backend() : ring_over(*transport_, {});
}

void HostProcessGroup::abort(const std::string& reason, FailureKind kind) {
  transport_->interrupt({kind, reason});
  wake();
}

// If the lock is taken, the thread in the collective will report the failure.
std::optional<Failure> HostProcessGroup::failure() {
  const std::unique_lock lock(transport_mutex_, std::try_to_lock);
  if (!lock) return {};
  if (failure_) return failure_;
  std::optional<Failure> heard = transport_->ranks().failure();
  if (heard) heard->text += options_.words_on_ranks;
  return heard;
}

// -- who executes ---------------------------------------------------------------------------------

void HostProcessGroup::wake() {
  eventfd_write(wakeup_.get(), 1);
  if (point_to_point_) point_to_point_->ring();
}

// A blocking call is executed by its caller: waking the worker and being woken by it would cost
// more than a small all-reduce does.
std::unique_lock<std::mutex> HostProcessGroup::take_turn() {
  ++demand_;
  if (point_to_point_) point_to_point_->ring();
  std::unique_lock lock(jobs_mutex_);
  no_jobs_.wait(lock, [&] { return jobs_.empty(); });
  std::unique_lock turn(transport_mutex_);
  --demand_;
  transport_->set_spinning(true);
  return turn;
}

Work HostProcessGroup::issue(Collective collective) {
  if (collective.operation == Operation::SendRecv)
    return point_to_point_->exchange(std::move(collective));
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

// The worker executes queued collectives. While there are none, it listens to the other ranks.
void HostProcessGroup::serve() {
  for (;;) {
    std::shared_ptr<QueuedCollective> job;
    {
      std::lock_guard lock(jobs_mutex_);
      if (!jobs_.empty())
        job = jobs_.front();
      else if (stop_ && !messages_under_way())
        return;
    }
    if (job == nullptr) {
      if (messages_under_way()) {
        std::this_thread::yield();  // lets a thread that wants the transport take it
        std::lock_guard lock(transport_mutex_);
        point_to_point_->move();
      } else {
        listen();
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

std::chrono::milliseconds HostProcessGroup::timeout_of(const Collective& c) const {
  return c.options.timeout.count() > 0 ? c.options.timeout : options_.timeout;
}

std::shared_ptr<Storage> HostProcessGroup::execute(const Collective& collective) {
  if (failure_) throw_failure(*failure_);
  Frame frame = frame_of(collective);
  frame.job = options_.job;
  frame.algorithm = static_cast<uint8_t>(options_.algorithm);
  frame.sequence = ++sequence_;
  transport_->set_timeout(timeout_of(collective));
  if (frame.step >= 0) set_step(frame.step);
  if (frame.bucket >= 0) own_status().bucket = frame.bucket + 1;
  try {
    std::shared_ptr<Storage> storage;
    const bool sums = collective.operation == Operation::AllReduce || collective.in_slices();
    const bool in_memory = sums && memory_ && memory_->all_reduce(collective, frame);
    if (!in_memory) {
      transport_->enter(frame, collective.options.about);
      Messenger messages(*transport_, frame, options_.checksums, {}, options_.on_send);
      if (collective.operation == Operation::AllocateShared)
        storage = memory_->allocate(frame.count);
      else
        run_by_messages(collective, frame, messages, options_.segment_bytes);
    }
    transport_->ranks().leave_collective();
    deliver(collective);
    return storage;
  } catch (...) {
    const Failure failure = give_up(describe(collective));
    if (!is_noticed(std::current_exception())) throw;
    throw_failure(failure);
  }
}

// Called in the handler of the exception that ends the group. Tells all ranks, and every waiter for
// a message.
Failure HostProcessGroup::give_up(const std::string& during) {
  Failure failure = failure_of(std::current_exception());
  transport_->ranks().abort(failure);
  failure.text = str(during, ": ", failure.text, options_.words_on_ranks);
  failure_ = failure;
  report_failure(failure, is_noticed(std::current_exception()));
  try {
    throw_failure(failure);
  } catch (...) {
    if (point_to_point_) point_to_point_->fail_all(std::current_exception());
  }
  return failure;
}

std::shared_ptr<Storage> HostProcessGroup::allocate_shared(size_t bytes, Device device) {
  CHECK_AS(DeviceError, reaches(device), "allocate_shared: on ", device,
           ", but this is a group of CPU ranks");
  check_process("allocate_shared");
  if (!memory_) return std::make_shared<Storage>(bytes, device);
  Collective collective{Operation::AllocateShared, {}, {}};
  collective.stands_for = frame_of(collective);
  set_shape(*collective.stands_for, std::array{static_cast<int64_t>(bytes)});
  const auto turn = take_turn();
  return execute(collective);
}

std::shared_ptr<ProcessGroup> HostProcessGroup::split(int color, int key) {
  CHECK(split_hosts, "split: this program is linked without it; link all of ringgrad::ringgrad");
  return split_hosts(*this, color, key);
}

}  // namespace ringgrad
