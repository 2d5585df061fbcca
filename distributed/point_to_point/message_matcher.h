// MessageMatcher: gives each message of another rank to the receive, or to the collective, that it
// is for.
//
// A point-to-point message goes from a send() to a recv(). It may arrive at any time: during a
// collective, from any rank, and before a receive is posted. A stream keeps the order of its bytes.
// So while any request is under way, everything that arrives is read, and a message without a
// receive is kept in memory. No message blocks another one, and ranks may all receive before they
// send, or all send before they receive.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {

// One posted send or receive. Its owner keeps the payload alive until arrive() or fail() is called,
// exactly once, by the thread that moves the bytes. By then the request no longer counts as under
// way, so the owner may leave the group.
class PointToPointRequest {
 public:
  virtual ~PointToPointRequest() = default;
  virtual void arrive(int sender) noexcept = 0;  // a send arrives when its bytes have left
  virtual void fail(std::exception_ptr error) noexcept = 0;

  bool outgoing = false;
  bool guarded = false;  // its messages carry checksums
  int peer = kAnyRank;
  Frame frame;  // both sides must have the same; the tag says which receive a send is for
  std::span<std::byte> payload;
  // The longest wait in which nothing moves.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);

 private:
  friend class MessageMatcher;
  // The position among the sender's sends to this rank; 0: nothing has arrived.
  uint64_t number = 0;
  size_t received = 0;             // in bytes
  std::deque<FrameBytes> headers;  // they must live until they are sent
  Transfer last;
};

// Thread-safety: any thread may call post() and under_way(); only the thread that moves bytes may
// call the rest.
class MessageMatcher final : public Sorter {
 public:
  explicit MessageMatcher(Transport& transport)
      : transport_(transport),
        streams_(transport.streams()),
        rank_(transport.rank()),
        peers_(static_cast<size_t>(transport.size())) {
    peers_[rank_].gone = true;  // nothing comes from there
    streams_.set_expected([this](int peer) { return expected(peer); });
  }

  void post(std::shared_ptr<PointToPointRequest> request);
  // Returns the number of requests that were posted and have not ended.
  int under_way() const { return under_way_.load(); }
  std::string describe_first();  // "send/recv of 10 float32"
  void fail_all(std::exception_ptr error) noexcept;
  std::chrono::milliseconds shortest_timeout();

  void want(int peer) override { wanted_ = peer; }
  const Frame* message(int peer) const override;
  bool take(int peer, std::span<std::byte> payload) override;
  // These also throw OutOfStepError if a message is not what its receive expects.
  bool progress() override;
  bool read_from(int peer) override;
  bool may_end(int peer) override;

 private:
  struct EarlyMessage {  // a message that arrived before it was asked for
    int peer;
    Frame frame;
    std::unique_ptr<std::byte[]> payload;
    bool complete = false;
    std::span<std::byte> bytes() const { return {payload.get(), frame.payload_bytes}; }
  };
  struct Peer {
    FrameBytes header;
    size_t header_bytes = 0;    // the number of header bytes that have arrived
    Frame frame;                // of the message that is arriving
    bool offered = false;       // to a collective; the payload is still in the stream
    bool in_payload = false;    // the payload is being read
    std::span<std::byte> rest;  // the part of the payload that has not arrived
    std::shared_ptr<PointToPointRequest> request;  // the receive that takes the payload; or
    EarlyMessage* early = nullptr;                 // the message that keeps it
    std::deque<EarlyMessage> kept;                 // complete or partial messages for collectives
    uint64_t sends_begun = 0;
    bool gone = false;  // the peer has left in good order
  };

  void route(int peer);
  void finish_payload(int peer);
  bool begin_posted();  // false: no request was posted
  bool end_sent();      // false: no send has ended
  void send(PointToPointRequest& request);
  using Requests = std::list<std::shared_ptr<PointToPointRequest>>;
  void end(Requests& requests, std::shared_ptr<PointToPointRequest> request, int sender);
  bool fits(const PointToPointRequest& request, int peer, const Frame& frame) const;
  std::span<std::byte> place_in(PointToPointRequest& request, int peer, const Frame& frame) const;
  void add_to(const std::shared_ptr<PointToPointRequest>& request, size_t bytes);
  void match_unexpected();
  Expect expected(int peer) const;

  Transport& transport_;
  PeerStreams& streams_;
  const int rank_;
  std::vector<Peer> peers_;  // by rank
  int wanted_ = -1;
  // Every request is in one of these lists, or in posted_, until it ends, even if something throws.
  // So fail_all() finds it. Receives are in the order in which they were posted.
  Requests receives_;
  Requests sends_;
  std::list<EarlyMessage> unexpected_;  // no receive asks for them yet

  std::atomic<int> under_way_ = 0;
  std::atomic<bool> some_posted_ = false;
  std::mutex posted_mutex_;
  Requests posted_;
};

// REQUIRES: the program is linked with point-to-point messages, so the transport has a matcher.
MessageMatcher& matcher_of(Transport& transport);
// Messages travel while a thread waits in a collective or here. Each request learns of its end. If
// an exception ends them all, the code that catches it must call fail_all(). Throws as
// Transport::wait() does.
void move_messages_until(Transport& transport, const std::function<bool()>& done);

}  // namespace ringgrad
