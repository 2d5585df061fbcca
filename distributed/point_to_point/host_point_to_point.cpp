// Sends and receives between ranks on CPUs. Their messages travel beside the collectives. Any
// thread that waits for something moves them; if none waits, the group's thread does.
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/point_to_point/message_matcher.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/distributed/process_groups/message_collectives.h"

namespace ringgrad {
class HostPointToPoint final : public PointToPoint {
 public:
  explicit HostPointToPoint(HostProcessGroup& group)
      : group_(group), transport_(*group.transport_), matcher_(matcher_of(transport_)) {}

  Work exchange(Collective collective) override {
    const bool async = collective.options.async;
    auto request = std::make_shared<PendingRequest>(std::move(collective));
    request->frame.job = group_.options_.job;
    request->timeout = group_.timeout_of(request->collective);
    request->guarded =
        request->outgoing && needs_checksum(group_.options_.checksums,
                                            transport_.streams().channel(request->peer).kind());
    matcher_.post(request);
    if (std::unique_lock lock(group_.transport_mutex_, std::defer_lock); !async && lock.try_lock())
      move_until(/*spinning=*/true, [&] { return request->done(); });
    if (under_way()) {
      group_.wake();
      transport_.ring();
    }
    if (!async) request->wait();
    return Work(std::move(request));
  }

  bool under_way() const override { return matcher_.under_way() > 0; }
  void move() override {
    move_until(/*spinning=*/false, [this] { return !under_way(); });
  }
  void ring() noexcept override {
    if (moving_) transport_.ring();
  }
  void fail_all(std::exception_ptr error) noexcept override { matcher_.fail_all(error); }

 private:
  struct PendingRequest final : PointToPointRequest, PendingWork {
    explicit PendingRequest(Collective c) : collective(std::move(c)) {
      outgoing = collective.input.defined();
      peer = collective.root;
      frame = frame_of(collective);
      payload = bytes_of(outgoing ? collective.input : collective.output);
    }
    void arrive(int sender) noexcept override {
      try {
        deliver(collective);
      } catch (...) {
        return leave(std::current_exception());
      }
      source_ = sender;
      leave(nullptr);
    }
    void fail(std::exception_ptr error) noexcept override { leave(error); }
    void leave(std::exception_ptr error) {
      collective = {};  // lets the tensors go
      end(error);
    }
    int source() const override { return source_; }

    Collective collective;
    int source_ = -1;
  };

  // REQUIRES: the caller holds the transport. Ends earlier when a collective wants it, or the group
  // ends.
  void move_until(bool spinning, const std::function<bool()>& done) {
    moving_ = true;
    try {
      if (group_.failure_) throw_failure(*group_.failure_);
      transport_.set_spinning(spinning);
      move_messages_until(transport_, [&] { return group_.demand_ > 0 || group_.stop_ || done(); });
    } catch (const std::exception&) {
      if (group_.failure_)
        fail_all(std::current_exception());
      else
        group_.give_up(matcher_.describe_first());
    }
    moving_ = false;
  }

  HostProcessGroup& group_;
  Transport& transport_;
  MessageMatcher& matcher_;
  // A thread holds the transport for messages, and releases it as soon as a collective wants it.
  std::atomic<bool> moving_ = false;
};

BEFORE_MAIN(
    host_point_to_point, make_point_to_point = [](HostProcessGroup& group) {
      return std::unique_ptr<PointToPoint>(std::make_unique<HostPointToPoint>(group));
    });

// -- the calls ------------------------------------------------------------------------------------

Work ProcessGroup::send(const Tensor& x, Int peer, const CollectiveOptions& options) {
  CHECK(x.defined(), "send: x is undefined");
  check_peer(Operation::SendRecv, peer);
  CHECK(options.tag >= 0, "send: tag ", options.tag, " is negative");
  CHECK(peer != rank_, "send: rank ", rank_, " cannot send to itself");
  return submit({Operation::SendRecv, x, {}, ReduceOp::Sum, peer, options});
}

Work ProcessGroup::recv(const Tensor& x, Int peer, const CollectiveOptions& options) {
  CHECK(x.defined(), "recv: x is undefined");
  if (peer != kAnyRank) check_peer(Operation::SendRecv, peer);
  CHECK(options.tag >= 0, "recv: tag ", options.tag, " is negative");
  CHECK(peer != rank_ && size_ > 1, "recv: rank ", rank_, " cannot receive from itself");
  return submit({Operation::SendRecv, {}, x, ReduceOp::Sum, peer, options});
}

}  // namespace ringgrad
