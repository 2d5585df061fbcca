#include "ringgrad/distributed/transport/failure_detector.h"

#include <sys/socket.h>

#include <algorithm>
#include <exception>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/os/process_state.h"

namespace ringgrad {
namespace {

// A rank says why it fails before it closes its data streams, so this rank waits so long for the
// reason.
constexpr std::chrono::milliseconds kExplanation{100};
constexpr std::chrono::milliseconds kRollCall{300};

}  // namespace

std::string describe(const Position& position) {
  if (position.frame.sequence == 0) return "before its first collective";
  const std::string names = position.about ? str(" (", *position.about, ")") : "";
  return str(position.inside ? "in " : "outside of collectives, its last one was ",
             describe(position.frame), names);
}

FailureDetector::Peer::Peer(ControlLink link) : control(std::move(link)) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = getsockopt(control.socket().get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  if (known && peer.pid != getpid()) process = peer.pid;
}

FailureDetector::FailureDetector(int rank, std::vector<ControlLink> controls)
    : rank_(rank), exceptions_at_birth_(std::uncaught_exceptions()) {
  for (ControlLink& control : controls) peers_.emplace_back(std::move(control));
}

// -- giving up, and leaving -----------------------------------------------------------------------

void FailureDetector::tell_all(const ControlMessage& message) noexcept {
  for (Peer& peer : peers_) peer.control.send(message);
}

void FailureDetector::abort(const Failure& failure) noexcept {
  if (failure_) return;
  failure_ = failure;
  tell_all({ControlKind::Failed, failure.kind, failure.text});
  if (on_failure) on_failure(failure);
}

void FailureDetector::fail(Failure failure) {
  abort(failure);
  throw_failure(*failure_);
}

void FailureDetector::interrupt(const Failure& failure) noexcept {
  std::lock_guard lock(interrupt_mutex_);
  if (!interruption_) interruption_ = failure;
  interrupted_ = true;
}

void FailureDetector::check_failure() const {
  if (failure_) throw_failure(*failure_);
}

void FailureDetector::check_interrupt() {
  check_failure();
  if (interrupted_) attend();
}

void FailureDetector::say_goodbye() noexcept {
  try {
    check_interrupt();  // no wait has followed that would do it
  } catch (...) {       // the others have been told
  }
  if (std::uncaught_exceptions() > exceptions_at_birth_)
    abort({FailureKind::Died, str("rank ", rank_, " failed with an exception")});
  if (!failure_) tell_all({ControlKind::Goodbye});
}

// -- what other ranks say -------------------------------------------------------------------------

void FailureDetector::watch(std::vector<pollfd>& descriptors) const {
  for (const Peer& peer : peers_)
    if (peer.control.socket() && !peer.control.closed())
      descriptors.push_back({peer.control.socket().get(), POLLIN | POLLRDHUP, 0});
}

void FailureDetector::answer(ControlMessage message, int rank) {
  Peer& peer = peers_[rank];
  switch (message.kind) {
    case ControlKind::Connected: break;
    case ControlKind::Goodbye: peer.left = true; break;
    case ControlKind::Failed: fail({message.failure, message.text});
    case ControlKind::Query: {
      const FrameBytes frame = encode(position_.frame);
      std::string text(reinterpret_cast<const char*>(frame.data()), frame.size());
      for (int r = 0; r < size(); ++r)
        if (peers_[r].missed) text += str(' ', r, ' ');
      peer.control.send({ControlKind::Position, {}, text + '\n' + describe(position_)});
      if (!message.text.empty() && seconds_since(asked_) > 1) ask_for_positions();
      break;
    }
    case ControlKind::Position: hear(message, rank); break;
  }
}

void FailureDetector::hear(const ControlMessage& position, int rank) {
  const size_t end = position.text.find('\n', kFrameBytes);
  if (end == std::string::npos) return;
  Frame theirs;
  try {
    theirs = decode(std::as_bytes(std::span(position.text)).first<kFrameBytes>());
  } catch (const DistributedError& error) {
    fail({FailureKind::Died,
          str("the position of rank ", rank, " reached rank ", rank_, " as a ", error.what())});
  }
  Peer& peer = peers_[rank];
  peer.misses = position.text.substr(kFrameBytes, end - kFrameBytes);
  peer.missed = false;
  peer.position = position.text.substr(end + 1);
  peer.entered = theirs.sequence;
  if (theirs.sequence == position_.frame.sequence && theirs.sequence > 0) compare(theirs, rank);
}

void FailureDetector::compare(const Frame& theirs, int rank) {
  try {
    check_in_step(position_.frame, rank_, theirs, rank);
  } catch (const OutOfStepError& error) {
    fail({FailureKind::OutOfStep, error.what()});
  }
}

// Messages are read before closed connections are noticed. A rank that gives up also closes its
// connections, and its message names the culprit. They are also read before an interruption is
// obeyed, which may only be a consequence: a group that was split off ends with its parent.
void FailureDetector::attend() {
  check_failure();
  for (int r = 0; r < size(); ++r)
    while (auto message = peers_[r].control.receive()) answer(std::move(*message), r);
  if (interrupted_) fail(*interruption_);
  for (int r = 0; r < size(); ++r)
    if (r != rank_ && peers_[r].control.closed() && !peers_[r].left)
      fail({FailureKind::Died, str("rank ", r, " died: its connection to rank ", rank_,
                                   " was closed without a goodbye")});
}

void FailureDetector::fail_because_left(int rank) {
  fail({FailureKind::Died,
        str("rank ", rank, " has left the group, and rank ", rank_, " still needs it")});
}

// A data stream has ended, perhaps only as a consequence. So the control connections get a moment
// to tell the cause.
void FailureDetector::fail_because_broken(int rank, const std::string& how) {
  const auto deadline = Deadline::after(kExplanation);
  do {
    attend();
    std::vector<pollfd> descriptors;
    watch(descriptors);
    poll(descriptors.data(), descriptors.size(), deadline.poll_timeout());
  } while (!deadline.passed());
  if (peers_[rank].left) fail_because_left(rank);
  fail({FailureKind::Died,
        str("the connection between ranks ", rank_, " and ", rank, " broke: ", how)});
}

// -- silence --------------------------------------------------------------------------------------

void FailureDetector::ask_for_positions() {
  tell_all({ControlKind::Query});
  asked_ = std::chrono::steady_clock::now();
  for (Peer& peer : peers_) {
    peer.missed = static_cast<bool>(peer.control.socket());
    peer.without_core = process_state(peer.process).without_core;
  }
}

bool FailureDetector::is_one_starved() const {
  const auto most = (std::chrono::steady_clock::now() - asked_) / 2;
  return std::ranges::any_of(peers_, [&](const Peer& peer) {
    return process_state(peer.process).without_core - peer.without_core > most;
  });
}

void FailureDetector::call_roll(const Sleep& sleep) {
  for (Peer& peer : peers_) peer.position.reset();
  tell_all({ControlKind::Query, {}, "and who answers you?"});
  const auto answered = [](const Peer& peer) {
    return peer.position || peer.left || !peer.control.socket();
  };
  const auto deadline = Deadline::after(kRollCall);
  while (!deadline.passed() && !std::ranges::all_of(peers_, answered))
    sleep(std::chrono::milliseconds(deadline.poll_timeout()));
}

// The rank that is waited for mostly waits for another one itself. So every rank is asked for its
// position. The one to blame has not entered this collective, or does not answer at all. A rank
// that does not answer may be unreachable from this rank alone: by the second round the others have
// asked, too.
std::string FailureDetector::who_is_missing(const PeerStreams& streams, const Sleep& sleep) {
  const auto asked_around = Deadline::after(kRollCall);
  call_roll(sleep);
  if (pairs_apart) {
    while (!asked_around.passed()) sleep(std::chrono::milliseconds(asked_around.poll_timeout()));
    call_roll(sleep);
    if (const std::string apart = pairs_apart(*this); !apart.empty()) return apart;
  }

  std::string text;
  std::string left;
  for (int r = 0; r < size(); ++r) {
    const Peer& peer = peers_[r];
    if (r == rank_) continue;
    if (peer.left)
      left += str("; rank ", r, " has left the group");
    else if (!peer.position)
      text += str("; rank ", r, " does not answer: ", process_state(peer.process).words);
    else if (position_.inside && peer.entered < position_.frame.sequence)
      text += str("; rank ", r, " has not come to it: it is ", *peer.position);
  }
  if (!text.empty()) return text;
  if (!left.empty()) return left;
  if (position_.inside) text = "; all ranks are in it";
  for (int r = 0; r < size(); ++r) {
    if (streams.receiving(r))
      text += str("; no data comes from rank ", r, " over ", streams.channel(r).kind().name);
    if (streams.sending(r))
      text += str("; rank ", r, " takes no data over ", streams.channel(r).kind().name);
  }
  return text;
}

void FailureDetector::time_out(std::chrono::milliseconds timeout, const PeerStreams& streams,
                               const Sleep& sleep) {
  const std::string text = who_is_missing(streams, sleep);
  const std::string seconds = str(std::chrono::duration<double>(timeout).count());
  const char* where = position_.inside ? "" : " in a send or receive";
  fail({FailureKind::TimedOut, str("nothing moved for ", seconds, " s", where, text)});
}

}  // namespace ringgrad
