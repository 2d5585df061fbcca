// The control side of Transport: who leaves, who fails, who is missed, and who is to blame.
#include <algorithm>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {
namespace {

constexpr std::chrono::milliseconds kExplanation{100};  // a rank that closes its streams has said why before
constexpr std::chrono::milliseconds kRollCall{300};

}  // namespace

void Transport::tell_all(const ControlMessage& message) noexcept {
  for (Peer& peer : peers_) peer.control.send(message);
}

void Transport::abort(const Failure& failure) noexcept {
  if (failure_) return;
  failure_ = failure;
  tell_all({ControlKind::Failed, failure.kind, failure.text});
}

void Transport::fail(Failure failure) {
  abort(failure);
  throw_failure(*failure_);
}

void Transport::interrupt(const Failure& failure) noexcept {
  {
    std::lock_guard lock(interrupt_mutex_);
    if (!interruption_) interruption_ = failure;
  }
  interrupted_ = true;
  const uint64_t one = 1;
  (void)!write(doorbell_.get(), &one, sizeof one);
}

void Transport::check_interrupt() {
  if (failure_) throw_failure(*failure_);
  if (!interrupted_) return;
  std::lock_guard lock(interrupt_mutex_);
  fail(*interruption_);
}

void Transport::watch(std::vector<pollfd>& descriptors) const {
  for (const Peer& peer : peers_)
    if (peer.control.descriptor() >= 0 && !peer.control.closed())
      descriptors.push_back({peer.control.descriptor(), POLLIN | POLLRDHUP, 0});
}

void Transport::answer(ControlMessage message, int rank) {
  Peer& peer = peers_[rank];
  switch (message.kind) {
    case ControlKind::Goodbye:
      peer.left = true;
      break;
    case ControlKind::Failed:
      fail({message.failure, message.text});
    case ControlKind::Query: {
      const FrameBytes frame = encode(position_.frame);
      std::string text(reinterpret_cast<const char*>(frame.data()), frame.size());
      peer.control.send({ControlKind::Position, {}, text + describe(position_)});
      break;
    }
    case ControlKind::Position:
      hear(message, rank);
      break;
    case ControlKind::Descriptor:
      if (!message.descriptor)
        fail({FailureKind::Died, str("rank ", this->rank(), " may have no more open files, and takes no shared memory ",
                                     "from rank ", rank, "; raise ulimit -n, or use --transport tcp")});
      peer.descriptors.push_back(std::move(message.descriptor));
      break;
  }
}

void Transport::hear(const ControlMessage& position, int rank) {
  FrameBytes bytes;
  if (position.text.size() < bytes.size()) return;
  std::memcpy(bytes.data(), position.text.data(), bytes.size());
  const Frame theirs = decode(bytes);
  peers_[rank].position = position.text.substr(bytes.size());
  peers_[rank].entered = theirs.sequence;
  if (theirs.sequence == position_.frame.sequence && theirs.sequence > 0) compare(theirs, rank);
}

void Transport::compare(const Frame& theirs, int rank) {
  try {
    check_in_step(position_.frame, this->rank(), theirs, rank);
  } catch (const OutOfStepError& error) {
    fail({FailureKind::OutOfStep, error.what()});
  }
}

// What ranks say comes first, and only then whose connection is closed: a rank that gives up closes its connections,
// too, and its words name the culprit.
void Transport::attend() {
  check_interrupt();
  for (int r = 0; r < size(); ++r)
    while (auto message = peers_[r].control.receive()) answer(std::move(*message), r);
  for (int r = 0; r < size(); ++r)
    if (r != rank() && peers_[r].control.closed() && !peers_[r].left)
      fail({FailureKind::Died,
            str("rank ", r, " died: its connection to rank ", rank(), " was closed without a goodbye")});
}

Failure Transport::left(int rank) const {
  return {FailureKind::Died, str("rank ", rank, " has left the group, and rank ", this->rank(), " still needs it")};
}

// A data stream has ended. That may be a consequence only, so the control connections get a moment to tell the cause.
void Transport::lost(int rank, const std::string& how) {
  const auto deadline = Deadline::after(kExplanation);
  do {
    attend();
    std::vector<pollfd> descriptors;
    watch(descriptors);
    poll(descriptors.data(), descriptors.size(), deadline.poll_timeout());
  } while (!deadline.passed());
  if (peers_[rank].left) fail(left(rank));
  fail({FailureKind::Died, str("the connection between ranks ", this->rank(), " and ", rank, " broke: ", how)});
}

// Called when nothing more can be received: throws if this rank needs one that has left, even in good order. What came
// before the goodbye is in shared memory by then; over TCP it may still be under way, and the stream's end tells.
void Transport::check_left(bool needs_all) {
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[r];
    if (peer.left && peer.memory && (needs_all || !peer.recvs.pending.empty() || !peer.sends.pending.empty()))
      fail(left(r));
  }
}

// Nothing has moved for long. Whoever waits for a rank is mostly waiting for one who waits himself, so every rank is
// asked where it is: the one to blame has not come to this collective, or does not answer at all.
std::string Transport::who_is_missing() {
  for (Peer& peer : peers_) peer.position.reset();
  tell_all({ControlKind::Query});
  const auto answered = [](const Peer& peer) { return peer.position || peer.left || peer.control.descriptor() < 0; };
  const auto deadline = Deadline::after(kRollCall);
  while (!deadline.passed() && !std::all_of(peers_.begin(), peers_.end(), answered)) sleep(deadline.poll_timeout());

  std::string text;
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[r];
    if (r == rank()) continue;
    if (peer.left)
      text += str("; rank ", r, " has left the group");
    else if (!peer.position)
      text += str("; rank ", r, " does not answer: it is stopped, or cut off");
    else if (position_.inside && peer.entered < position_.frame.sequence)
      text += str("; rank ", r, " has not come to it: it is ", *peer.position);
  }
  if (!text.empty()) return text;
  if (position_.inside) text = "; all ranks are in it";
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[r];
    if (!peer.recvs.pending.empty()) text += str("; no data comes from rank ", r, " over ", peer.channel->name());
    if (!peer.sends.pending.empty()) text += str("; rank ", r, " takes no data over ", peer.channel->name());
  }
  return text;
}

void Transport::timed_out() {
  const std::string text = who_is_missing();
  const std::string seconds = str(std::chrono::duration<double>(timeout()).count());
  const char* where = position_.inside ? "" : " in a send or receive";
  fail({FailureKind::TimedOut, str("nothing moved for ", seconds, " s", where, text)});
}

}  // namespace ringgrad
