// MessageMatcher: sorts the messages that come from other ranks where some of them are messages.
//
// A message, which send() and recv() exchange, may come at
// any time: in the middle of a collective, from any rank, and before anybody has asked for it.
// Streams keep the order of what they carry, so while a message is under way everything that
// arrives is read: what nobody has asked for yet is kept in memory. So no message waits behind
// another, and ranks may both receive before they send, or both send before they receive.
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

// One send or receive. Its owner keeps the payload until it is told of the end, by the thread that
// moves the bytes: once, when the message is under way no more, so that the owner may leave the
// group then.
class PointToPointRequest {
 public:
  virtual ~PointToPointRequest() = default;
  virtual void arrive(int sender) noexcept = 0;  // for a send: the bytes have left
  virtual void fail(std::exception_ptr error) noexcept = 0;

  bool outgoing = false;
  bool guarded = false;  // carries checksums
  int peer = kAnyRank;
  Frame frame;  // what both sides must agree on; its tag says which receive it is for
  std::span<std::byte> payload;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of a wait in which nothing moves

 private:
  friend class MessageMatcher;
  uint64_t number = 0;             // of the sender's messages to this rank; 0: nothing has come
  size_t received = 0;             // bytes
  std::deque<FrameBytes> headers;  // must live until they are sent
  Transfer last;
};

// Thread-safety: post() and under_way() are for all threads, the rest for the one that moves bytes.
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
  // Messages that have been posted and have not ended.
  int under_way() const { return under_way_.load(); }
  std::string describe_first();  // "send/recv of 10 float32"
  void fail_all(std::exception_ptr error) noexcept;
  std::chrono::milliseconds shortest_timeout();

  void want(int peer) override { wanted_ = peer; }
  const Frame* message(int peer) const override;
  bool take(int peer, std::span<std::byte> payload) override;
  // They throw OutOfStepError, too, for a message that is not what its receiver expects.
  bool progress() override;
  bool read_from(int peer) override;
  bool may_end(int peer) override;

 private:
  struct EarlyMessage {  // that has come before somebody asked for it
    int peer;
    Frame frame;
    std::unique_ptr<std::byte[]> payload;
    bool complete = false;
    std::span<std::byte> bytes() const { return {payload.get(), frame.payload_bytes}; }
  };
  struct Peer {
    FrameBytes header;
    size_t header_bytes = 0;    // of it that have come
    Frame frame;                // of the message that is coming
    bool offered = false;       // to the collective: its payload is still in the stream
    bool in_payload = false;    // the payload is being read,
    std::span<std::byte> rest;  // of which this has not come yet,
    std::shared_ptr<PointToPointRequest> request;  // for this message,
    EarlyMessage* early = nullptr;                 // or to be kept
    std::deque<EarlyMessage> kept;                 // for collectives
    uint64_t sends_begun = 0;
    bool gone = false;  // in good order
  };

  void route(int peer);
  void finish_payload(int peer);
  bool begin_posted();  // false: there was nothing new
  bool end_sent();      // false: none has ended
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
  // A message is in one of these or posted until its end, whatever is thrown: fail_all() finds it.
  // in the order in which they were posted
  Requests receives_;
  Requests sends_;
  std::list<EarlyMessage> unexpected_;  // messages that nobody has asked for yet

  std::atomic<int> under_way_ = 0;
  std::atomic<bool> some_posted_ = false;
  std::mutex posted_mutex_;
  Requests posted_;
};

// REQUIRES: the transport was made by a program with messages.
MessageMatcher& matcher_of(Transport& transport);
// Messages travel while some thread waits in a collective or here. Each is told of its end, unless
// an exception ends them all: who catches it calls fail_all(). Throws as Transport::wait().
void move_messages_until(Transport& transport, const std::function<bool()>& done);

}  // namespace ringgrad
