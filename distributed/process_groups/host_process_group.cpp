#include "ringgrad/distributed/process_groups/host_process_group.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/collectives/collectives.h"
#include "ringgrad/distributed/collectives/ring.h"
#include "ringgrad/distributed/job/job_status.h"

namespace ringgrad {
namespace {

std::span<std::byte> bytes_of(const Tensor& x) {
  const size_t items = x.defined() ? items_in(x) : 0;
  if (items == 0) return {};
  return {static_cast<std::byte*>(x.raw_data()), items * itemsize(x.dtype())};
}

// So few bytes that messages cost more than what is in them.
bool is_small(std::span<const std::byte> x, int ranks) { return x.size() * static_cast<size_t>(ranks - 1) <= 32 << 10; }

// From a call on tensors to the algorithm on bytes. REQUIRES: frame describes it, and this rank has entered it.
void run_by_messages(const Collective& c, const Frame& frame, Transport& transport, const HostOptions& options) {
  Messenger messages(transport, frame, options.checksums, options.on_send);
  const size_t segment = options.segment_bytes, count = frame.count;
  const auto in = bytes_of(c.input), out = bytes_of(c.output);
  const auto how = [&]() -> const ReduceFunctions& { return reduction(name(c.operation), frame.dtype, c.reduce_op); };
  switch (c.operation) {
    case Operation::AllReduce:
      if (options.algorithm == AllReduceAlgorithm::Exchange ||
          (options.algorithm == AllReduceAlgorithm::Auto && is_small(out, transport.size())))
        exchange_all_reduce(messages, out.data(), count, how());
      else if (options.algorithm == AllReduceAlgorithm::GatherBroadcast)
        gather_broadcast_all_reduce(messages, out.data(), count, how());
      else
        ring_all_reduce(messages, out.data(), count, how(),
                        options.algorithm == AllReduceAlgorithm::Ring ? kWholeChunk : segment);
      break;
    case Operation::Broadcast: broadcast(messages, c.root, out, segment); break;
    case Operation::Reduce: reduce(messages, c.root, out.data(), in.data(), count, how(), segment); break;
    case Operation::Gather: gather(messages, c.root, out, in); break;
    case Operation::Scatter: scatter(messages, c.root, out, in); break;
    case Operation::AllGather: ring_all_gather(messages, out, in, segment); break;
    case Operation::ReduceScatter: ring_reduce_scatter(messages, out.data(), in.data(), count, how(), segment); break;
    case Operation::Barrier: barrier(messages); break;
    case Operation::SendRecv:
      if (c.input.defined())
        messages.send(c.root, in);
      else
        messages.recv(c.root, out);
      messages.finish();
      break;
    default: ASSERT(false);
  }
}

}  // namespace

struct HostProcessGroup::Job final : PendingWork {
  explicit Job(Collective c) : collective(std::move(c)) {}
  Collective collective;
};

HostProcessGroup::HostProcessGroup(std::unique_ptr<Transport> transport, const HostOptions& options)
    : ProcessGroup(transport->rank(), transport->size()),
      options_(options),
      exceptions_at_birth_(std::uncaught_exceptions()),
      transport_(std::move(transport)),
      sent_(size()),
      received_(size()),
      wakeup_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  CHECK_AS(DistributedError, wakeup_, "process group: eventfd: ", std::strerror(errno));
  CHECK(options_.algorithm != AllReduceAlgorithm::SharedMemory || transport_->shares_memory(),
        "process group: the ranks do not share memory, so algorithm SharedMemory cannot be used");
  CHECK(options_.segment_bytes > 0, "process group: segments of 0 bytes");
  const bool direct =
      options_.algorithm == AllReduceAlgorithm::Auto || options_.algorithm == AllReduceAlgorithm::SharedMemory;
  if (direct && transport_->shares_memory()) shared_.emplace(*transport_);
  transport_->set_timeout(options_.timeout);
  worker_ = std::thread([this] { serve(); });
}

HostProcessGroup::~HostProcessGroup() {
  std::unique_lock lock(jobs_mutex_);
  if (std::uncaught_exceptions() > exceptions_at_birth_)
    transport_->interrupt({FailureKind::Died, str("rank ", rank(), " failed with an exception")});
  else if (!jobs_.empty())
    transport_->interrupt({FailureKind::Died, str("rank ", rank(), " left the group with collectives under way")});
  stop_ = true;
  lock.unlock();
  wake();
  worker_.join();
}

std::string HostProcessGroup::backend() const {
  if (shared_ && size() > 1) return "shared memory";
  std::string channels;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const std::string channel = transport_->channel(r);
    if (channels.find(channel) == std::string::npos) channels += (channels.empty() ? "" : "+") + channel;
  }
  return channels.empty() ? "ring" : "ring over " + channels;
}

void HostProcessGroup::abort(const std::string& reason, FailureKind kind) {
  transport_->interrupt({kind, reason});
  wake();
}

// -- who executes ---------------------------------------------------------------------------------------------------

void HostProcessGroup::wake() { eventfd_write(wakeup_.get(), 1); }

// A blocking call is executed by its caller: waking the worker and being woken by it would cost more than a small
// all-reduce does.
template <class Body>
void HostProcessGroup::execute_here(const Collective& collective, Body body) {
  std::unique_lock lock(jobs_mutex_);
  no_jobs_.wait(lock, [&] { return jobs_.empty(); });
  std::lock_guard transport_lock(transport_mutex_);
  lock.unlock();
  transport_->set_spinning(true);
  execute(collective, body);
}

Work HostProcessGroup::issue(Collective collective) {
  if (reduces(collective.operation))
    (void)reduction(name(collective.operation), collective.input.dtype(), collective.reduce_op);
  if (!collective.options.async) {
    execute_here(collective, [&](const Frame& frame) { run(collective, frame); });
    return {};
  }
  auto job = std::make_shared<Job>(std::move(collective));
  {
    std::lock_guard lock(jobs_mutex_);
    jobs_.push_back(job);
  }
  wake();
  return Work(std::move(job));
}

// The worker executes what is queued, and while nothing is, listens to the other ranks.
void HostProcessGroup::serve() {
  for (;;) {
    std::shared_ptr<Job> job;
    {
      std::lock_guard lock(jobs_mutex_);
      if (!jobs_.empty())
        job = jobs_.front();
      else if (stop_)
        return;
    }
    if (job == nullptr) {
      listen();
      continue;
    }
    std::exception_ptr error;
    try {
      std::lock_guard lock(transport_mutex_);
      transport_->set_spinning(false);  // the core belongs to this rank's computation
      execute(job->collective, [&](const Frame& frame) { run(job->collective, frame); });
    } catch (...) {
      error = std::current_exception();
    }
    {
      std::lock_guard lock(jobs_mutex_);
      jobs_.pop_front();
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
      transport_->attend();
      transport_->watch(watched);
    } catch (...) {  // the group has failed, and the next collective will say so
    }
  }
  poll(watched.data(), watched.size(), -1);
  eventfd_t count;
  eventfd_read(wakeup_.get(), &count);
}

// -- what is executed -----------------------------------------------------------------------------------------------

Frame HostProcessGroup::next_frame(const Collective& c) {
  Frame frame = frame_of(c);
  frame.job = options_.job;
  frame.algorithm = static_cast<uint8_t>(options_.algorithm);
  if (c.operation == Operation::SendRecv)
    frame.sequence = c.input.defined() ? ++sent_[c.root] : ++received_[c.root];
  else
    frame.sequence = ++sequence_;
  return frame;
}

// "; this group's ranks 0, 1 are the job's 4, 5"
std::string HostProcessGroup::words_on_ranks() const {
  if (options_.job_ranks.empty()) return "";
  std::vector<int> own(options_.job_ranks.size());
  std::iota(own.begin(), own.end(), 0);
  return fmt::format("; this group's ranks {} are the job's {}", fmt::join(own, ", "),
                     fmt::join(options_.job_ranks, ", "));
}

template <class Body>
void HostProcessGroup::execute(const Collective& collective, Body body) {
  if (failure_) throw_failure(*failure_);
  Frame frame = next_frame(collective);
  if (frame.step >= 0) set_step(frame.step);
  if (frame.bucket >= 0) own_status().bucket = frame.bucket + 1;
  try {
    body(frame);
    transport_->leave();
  } catch (const std::exception& error) {
    Failure failure = failure_of(std::current_exception());
    transport_->abort(failure);
    failure.text = str(describe(collective), ": ", failure.text, words_on_ranks());
    failure_ = failure;
    const bool noticed = is_noticed(error);
    report_failure(failure, noticed);
    if (!noticed) throw;
    throw_failure(failure);
  }
}

void HostProcessGroup::run(const Collective& c, const Frame& frame) {
  if (c.operation == Operation::AllReduce && shared_) {
    const ReduceFunctions& how = reduction("all_reduce", frame.dtype, c.reduce_op);
    shared_->run(frame, c.options.about, c.output.raw_data(), frame.count, how);
    return;
  }
  if (c.operation != Operation::SendRecv) transport_->enter(frame, c.options.about);
  run_by_messages(c, frame, *transport_, options_);
}

std::shared_ptr<Storage> HostProcessGroup::allocate_shared(size_t bytes, Device device) {
  CHECK_AS(DeviceError, reaches(device), "allocate_shared: on ", device, ", but this is a group of CPU ranks");
  if (!shared_) return std::make_shared<Storage>(bytes, device);
  std::shared_ptr<Storage> storage;
  execute_here({Operation::AllocateShared, {}, {}}, [&](Frame& frame) {
    frame.count = bytes;
    transport_->enter(frame);
    storage = shared_->allocate(bytes);
  });
  return storage;
}

// -- groups out of groups: the ranks exchange their addresses through the parent, and connect anew -------------------

std::shared_ptr<ProcessGroup> HostProcessGroup::split(int color, int key) {
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
  HostOptions options = options_;
  options.job = connected.job;
  options.job_ranks.clear();
  for (const int member : members)
    options.job_ranks.push_back(options_.job_ranks.empty() ? member : options_.job_ranks[member]);
  return std::make_shared<HostProcessGroup>(std::move(connected.transport), options);
}

}  // namespace ringgrad
