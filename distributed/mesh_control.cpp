// The control side of MeshTransport: who leaves, who fails, who is missed, and who is to blame.
#include <poll.h>

#include "core/check.h"
#include "distributed/mesh_transport.h"

namespace ringgrad {
namespace {

constexpr std::chrono::milliseconds kExplanation{100};  // a rank that closes its streams has said why before
constexpr std::chrono::milliseconds kRollCall{300};

}  // namespace

void MeshTransport::tell_all(const ControlMessage& message) noexcept {
  for (Peer& peer : peers_) peer.control.send(message);
}

void MeshTransport::abort(const Failure& failure) noexcept {
  if (failure_) return;
  failure_ = failure;
  tell_all({ControlKind::Failed, failure.kind, 0, failure.text});
}

void MeshTransport::fail(Failure failure) {
  abort(failure);
  throw_failure(*failure_);
}

void MeshTransport::answer(ControlMessage message, int rank) {
  Peer& peer = peers_[rank];
  switch (message.kind) {
    case ControlKind::Goodbye:
      peer.left = true;
      break;
    case ControlKind::Failed:
      fail({message.failure, message.text});
    case ControlKind::Query: {
      const auto& describe = position().describe;
      peer.control.send({ControlKind::Position, {}, position().entered, describe ? describe() : ""});
      break;
    }
    case ControlKind::Position:
      peer.position = std::move(message);
      break;
    case ControlKind::Descriptor:
      peer.descriptors.push_back(std::move(message.descriptor));
      break;
  }
}

// What ranks say comes first, and only then whose connection is closed: a rank that gives up closes its connections,
// too, and its words name the culprit.
void MeshTransport::attend() {
  if (failure_) throw_failure(*failure_);
  for (int r = 0; r < size(); ++r)
    while (auto message = peers_[r].control.receive()) answer(std::move(*message), r);
  for (int r = 0; r < size(); ++r) {
    ControlLink& control = peers_[r].control;
    if (r == rank() || !control.closed() || control.descriptor() < 0) continue;
    if (!peers_[r].left)
      fail({FailureKind::Died,
            str("rank ", r, " died: its connection to rank ", rank(), " was closed without a goodbye")});
    control.close();
  }
}

// A data stream has ended. That may be a consequence only, so the control connections get a moment to tell the cause.
void MeshTransport::lost(int rank, const std::string& how) {
  const auto deadline = Deadline::after(kExplanation);
  do {
    attend();
    std::vector<pollfd> descriptors;
    watch(descriptors);
    poll(descriptors.data(), descriptors.size(), deadline.poll_timeout());
  } while (!deadline.passed());
  fail({FailureKind::Died, peers_[rank].left
                               ? str("rank ", rank, " has left the group, and rank ", this->rank(), " still needs it")
                               : str("the connection between ranks ", this->rank(), " and ", rank, " broke: ", how)});
}

// Nothing has moved for long. Whoever waits for a rank is mostly waiting for one who waits himself, so every rank is
// asked where it is: the one to blame has not come to this collective, or does not answer at all.
void MeshTransport::timed_out() {
  for (Peer& peer : peers_) peer.position.reset();
  tell_all({ControlKind::Query, {}, position().entered});
  const auto answered = [&](const Peer& peer) { return peer.position || peer.control.descriptor() < 0; };
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
    else if (peer.position->number < position().entered)
      text += str("; rank ", r, " has not come to it: it is ", peer.position->text);
  }
  if (text.empty()) {
    text = "; all ranks are in it";
    for (int r = 0; r < size(); ++r) {
      const Peer& peer = peers_[r];
      if (!peer.recvs.pending.empty()) text += str("; no data comes from rank ", r, " over ", peer.channel->name());
      if (!peer.sends.pending.empty()) text += str("; rank ", r, " takes no data over ", peer.channel->name());
    }
  }
  const std::string seconds = str(std::chrono::duration<double>(timeout()).count());
  fail({FailureKind::TimedOut, str("nothing moved for ", seconds, " s", text)});
}

}  // namespace ringgrad
