// Mailbox: the messages that come from other ranks, each a frame (frame.h) and a payload, and who
// gets them.
//
// A collective knows which rank it must hear from next: it wants a message from that rank, and
// receives the payload where it belongs. A letter, which send() and recv() exchange, may come at
// any time: in the middle of a collective, from any rank, and before anybody has asked for it.
// Streams keep the order of what they carry, so while a letter is under way everything that arrives
// is read: what nobody has asked for yet is kept in memory. So no message waits behind another, and
// ranks may both receive before they send, or both send before they receive.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/distributed/transport/peer_streams.h"

namespace ringgrad {

// One send or receive. Its owner keeps the payload until it is told of the end, by the thread that
// moves the bytes: once, when the letter is under way no more, so that the owner may leave the
// group then.
class Letter {
 public:
  virtual ~Letter() = default;
  virtual void arrive(int sender) noexcept = 0;  // for a send: the bytes have left
  virtual void fail(std::exception_ptr error) noexcept = 0;

  bool outgoing = false;
  bool guarded = false;  // carries checksums
  int peer = kAnyRank;
  Frame frame;  // what both sides must agree on; its tag says which receive it is for
  std::span<std::byte> payload;
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of a wait in which nothing moves

 private:
  friend class Mailbox;
  uint64_t number = 0;             // of the sender's letters to this rank; 0: nothing has come
  size_t received = 0;             // bytes
  std::deque<FrameBytes> headers;  // must live until they are sent
  Transfer last;
};

// Thread-safety: post() and under_way() are for all threads, the rest for the one that moves bytes.
class Mailbox {
 public:
  Mailbox(PeerStreams& streams, int rank, int size) : streams_(streams), rank_(rank), peers_(size) {
    peers_[rank].gone = true;  // nothing comes from there
  }

  void post(std::shared_ptr<Letter> letter);
  // Letters that have been posted and have not ended.
  int under_way() const { return under_way_.load(); }
  std::string describe_first();  // "send/recv of 10 float32"
  void fail_all(std::exception_ptr error) noexcept;
  std::chrono::milliseconds shortest_timeout();

  // A collective waits for the next message from `peer`, or for none (-1).
  void want(int peer);
  bool has_message(int peer) const;
  // Of the message that is there.
  const Frame& frame(int peer) const;
  // Where its payload has been read already: copies it. Else false, and the caller receives it from
  // the stream.
  bool take(int peer, std::span<std::byte> payload);
  // Throws DistributedError, naming the link, where the payload is not what the sender sent.
  void check_payload(int peer, const Frame& frame, std::span<const std::byte> payload) const;

  // Move bytes, and never wait. Throw ChannelClosed; DistributedError for a damaged message, naming
  // the link, and OutOfStepError for a letter that is not what its receiver expects.
  bool begin_posted();  // false: there was nothing new
  bool end_sent();      // false: none has ended
  bool reads_from(int peer) const {
    return peer == wanted_ || (under_way_ > 0 && !peers_[peer].gone);
  }
  bool read_from(int peer);
  // The stream of `peer` has ended: true where nobody needs more of it.
  bool may_end(int peer);

 private:
  struct Message {  // that has come before somebody asked for it
    int peer;
    Frame frame;
    std::unique_ptr<std::byte[]> payload;
    bool complete = false;
    std::span<std::byte> bytes() const { return {payload.get(), frame.payload_bytes}; }
  };
  struct Peer {
    FrameBytes header;
    size_t header_bytes = 0;         // of it that have come
    Frame frame;                     // of the message that is coming
    bool offered = false;            // to the collective: its payload is still in the stream
    bool in_payload = false;         // the payload is being read,
    std::span<std::byte> rest;       // of which this has not come yet,
    std::shared_ptr<Letter> letter;  // for this letter,
    Message* message = nullptr;      // or to be kept
    std::deque<Message> kept;        // for collectives
    uint64_t letters_sent = 0;
    bool gone = false;  // in good order
  };

  std::string link_from(int peer) const;
  void route(int peer);
  void finish_payload(int peer);
  void send(Letter& letter);
  using Letters = std::list<std::shared_ptr<Letter>>;
  void end(Letters& letters, std::shared_ptr<Letter> letter, int sender);
  bool fits(const Letter& letter, int peer, const Frame& frame) const;
  std::span<std::byte> place_in(Letter& letter, int peer, const Frame& frame) const;
  void add_to(const std::shared_ptr<Letter>& letter, size_t bytes);
  void deliver_strays();
  void listen();

  PeerStreams& streams_;
  const int rank_;
  std::vector<Peer> peers_;  // by rank
  int wanted_ = -1;
  // A letter is in one of these or posted until its end, whatever is thrown: fail_all() finds it.
  Letters receives_, sends_;   // in the order in which they were posted
  std::list<Message> strays_;  // letters that nobody has asked for yet

  std::atomic<int> under_way_ = 0;
  std::atomic<bool> some_posted_ = false;
  std::mutex posted_mutex_;
  Letters posted_;
};

}  // namespace ringgrad
