// HostProcessGroup: our group of CPU ranks, over any Transport.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "ringgrad/distributed/collectives/messenger.h"
#include "ringgrad/distributed/process_group.h"
#include "ringgrad/distributed/rendezvous/connect.h"

namespace ringgrad {

struct HostOptions {
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::Auto;
  size_t segment_bytes = 256 << 10;
  // The time that a wait in which nothing moves may last.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  Checksums checksums = Checksums::Auto;
  // Sees this rank's messages.
  SendObserver on_send = {};
  // Messages of this group carry it, so that they are taken for no other group's.
  uint64_t job = 0;
  // The machine of each rank, as a number; empty: all on this machine, or each elsewhere.
  std::vector<int> machines = {};
  // For groups split off this one.
  ConnectOptions connect = {};
  // Set for a group that was split off: the ranks' numbers in the job, and the words for them in
  // errors.
  std::vector<int> job_ranks = {};
  std::string words_on_ranks = {};
};

// Memory that ranks share, for sums (shared_memory/shared_all_reduce.cpp).
class GroupMemory {
 public:
  virtual ~GroupMemory() = default;
  virtual std::string backend() const = 0;
  virtual std::shared_ptr<Storage> allocate(size_t bytes) = 0;
  // Executes an all-reduce, or one half of it. Returns false if messages must do it.
  virtual bool all_reduce(const Collective& collective, const Frame& frame) = 0;
};
// The file that implements it sets it before main. It returns nullptr if the ranks share no memory.
using FindGroupMemory = std::unique_ptr<GroupMemory> (*)(Transport&, const HostOptions&);
inline constinit FindGroupMemory find_group_memory = nullptr;

// Messages between ranks beside the collectives (point_to_point/host_point_to_point.cpp).
class HostProcessGroup;
class PointToPoint {
 public:
  virtual ~PointToPoint() = default;
  virtual Work exchange(Collective collective) = 0;
  virtual bool under_way() const = 0;
  // Moves it until nothing is under way, a collective wants the transport, or the group ends.
  // REQUIRES: the caller holds the transport.
  virtual void move() = 0;
  // Makes a thread in move() look again. Any thread may call it.
  virtual void ring() noexcept = 0;
  virtual void fail_all(std::exception_ptr error) noexcept = 0;
};
using MakePointToPoint = std::unique_ptr<PointToPoint> (*)(HostProcessGroup&);
inline constinit MakePointToPoint make_point_to_point = nullptr;

// Splits groups (other_collectives/split.cpp).
using SplitHosts = std::shared_ptr<ProcessGroup> (*)(HostProcessGroup&, int color, int key);
inline constinit SplitHosts split_hosts = nullptr;

// Returns "ring over tcp", with the transports by which this rank sends to these ranks, or to all
// if there are none.
std::string ring_over(Transport& transport, const std::vector<int>& ranks);

class HostProcessGroup final : public ProcessGroup {
 public:
  explicit HostProcessGroup(std::unique_ptr<Transport> transport, const HostOptions& options = {});
  // Leaves the group. Unfinished work is given up, and so is the group if an exception is ending
  // it.
  ~HostProcessGroup() override;

  const HostOptions& options() const { return options_; }
  std::string backend() const override;
  std::shared_ptr<Storage> allocate_shared(size_t bytes, Device device = {}) override;
  std::shared_ptr<ProcessGroup> split(int color, int key) override;
  void abort(const std::string& reason, FailureKind kind) override;
  std::optional<Failure> failure() override;

 private:
  friend class HostPointToPoint;
  friend struct GroupsSplitOff;
  struct QueuedCollective;

  Work issue(Collective collective) override;
  std::unique_lock<std::mutex> take_turn();
  // REQUIRES: the caller holds the transport. Returns the memory of AllocateShared, else nothing.
  std::shared_ptr<Storage> execute(const Collective& collective);
  bool messages_under_way() const { return point_to_point_ && point_to_point_->under_way(); }
  Failure give_up(const std::string& during);
  std::chrono::milliseconds timeout_of(const Collective& collective) const;
  void serve();
  void listen();
  void wake();

  const HostOptions options_;
  const int exceptions_at_birth_;

  // One thread at a time uses the members below. Lock order: jobs_mutex_, transport_mutex_.
  std::mutex transport_mutex_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<GroupMemory> memory_;
  std::unique_ptr<PointToPoint> point_to_point_;
  uint64_t sequence_ = 0;
  // The first cause, in the words of the collective that has seen it.
  std::optional<Failure> failure_;

  // Asynchronous collectives in the order of issue; the worker executes the first one. If there is
  // none, the caller of a blocking collective executes it itself.
  std::mutex jobs_mutex_;
  std::condition_variable no_jobs_;
  std::deque<std::shared_ptr<QueuedCollective>> jobs_;
  std::atomic<bool> stop_ = false;

  // The number of collectives that were called and have not begun, or are not done if they are
  // asynchronous.
  std::atomic<int> demand_ = 0;

  FileDescriptor wakeup_;  // an eventfd: the worker has something to do
  std::thread worker_;
};

}  // namespace ringgrad
