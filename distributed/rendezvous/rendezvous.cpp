#include "ringgrad/distributed/rendezvous/rendezvous.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <thread>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/rendezvous/handshake.h"

namespace ringgrad {
namespace {

constexpr size_t kMaxValue = 1024;
constexpr uint32_t kMaxReply = 64 << 20;
// The interval at which rank 0 checks that the waiting ranks still live.
constexpr std::chrono::milliseconds kBetweenChecks{100};
// The time by which rank 0's message about missing ranks comes before a rank's own deadline.
constexpr std::chrono::seconds kGrace{1};
// Before a rank connects again. A proxy may accept each connection, and lose it at once.
constexpr std::chrono::milliseconds kRetry{5};

// A reply: this header, then a failure's text or, for each rank, the length of its value (4 bytes)
// and the value.
struct ReplyHeader {
  uint32_t failed;  // 0, or 1 + FailureKind
  uint32_t bytes;
};

std::string who() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return str("process ", getpid(), " on ", host);
}

std::string reply_text(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) {
    const auto length = static_cast<uint32_t>(value.size());
    text.append(reinterpret_cast<const char*>(&length), sizeof length);
    text += value;
  }
  return text;
}

std::vector<std::string> parse_values(const std::string& text, int size) {
  std::vector<std::string> values;
  size_t at = 0;
  while (at + sizeof(uint32_t) <= text.size()) {
    uint32_t length;
    std::memcpy(&length, text.data() + at, sizeof length);
    at += sizeof length;
    if (length > text.size() - at) break;
    values.push_back(text.substr(at, length));
    at += length;
  }
  CHECK_AS(DistributedError, at == text.size() && values.size() == static_cast<size_t>(size),
           "rendezvous: rank 0 sent a damaged answer");
  return values;
}

void reply(const FileDescriptor& socket, uint32_t failed, const std::string& text,
           const std::string& peer) {
  const ReplyHeader header{failed, static_cast<uint32_t>(text.size())};
  std::string message(reinterpret_cast<const char*>(&header), sizeof header);
  message += text;
  write_all(socket, std::as_bytes(std::span(message)), Deadline::after(kGrace), peer.c_str());
}

void refuse(const FileDescriptor& socket, const Failure& failure) {
  try {
    reply(socket, 1 + static_cast<uint32_t>(failure.kind), failure.text,
          "a rank at the rendezvous");
  } catch (const DistributedError&) {  // the rank has gone
  }
}

// Rank 0.
class RendezvousServer {
 public:
  RendezvousServer(int size, const std::string& value, const RendezvousOptions& options)
      : size_(size), deadline_(Deadline::after(options.timeout)), options_(options), places_(size) {
    places_[0] = Place{{}, who(), "", value};
  }

  std::vector<std::string> run() {
    std::vector<FileDescriptor> listeners = listen_on_all_of(options_.address, options_.foreign);
    here_ = local_address(listeners[0]);
    PeerListener listener(std::move(listeners), options_.secret, size_);
    try {
      while (joined_ < size_) {
        if (auto admitted = listener.next(Deadline::after(kBetweenChecks)))
          admit(std::move(*admitted));
        else if (deadline_.passed())
          throw_failure({FailureKind::TimedOut, missing() + listener.strangers()});
        check_alive();
      }
      return answer();
    } catch (...) {
      const Failure failure = failure_of(std::current_exception());
      for (int r = 1; r < size_; ++r)
        if (places_[r]) refuse(places_[r]->socket, failure);
      // Ranks that are just coming hear it, too.
      const auto end = Deadline::after(2 * kBetweenChecks);
      while (const auto late = listener.next(end)) refuse(late->socket, failure);
      throw;
    }
  }

 private:
  struct Place {
    FileDescriptor socket;
    std::string who;
    std::string number;  // by which it is known when it comes again
    std::string value;
  };

  std::vector<std::string> answer() {
    std::vector<std::string> values;
    for (const auto& place : places_) values.push_back(place->value);
    const std::string text = reply_text(values);
    for (int r = 1; r < size_; ++r)
      reply(places_[r]->socket, 0, text,
            str("rank ", r, " (", places_[r]->who, ") at the rendezvous"));
    return values;
  }

  void admit(AdmittedPeer admitted) {
    if (!may_talk(admitted.socket, options_.secret)) {
      if (strangers_.empty())
        strangers_ = str("; a process of another user came as rank ", admitted.claims.rank);
      return refuse(admitted.socket,
                    {FailureKind::OutOfStep, str("rendezvous: this process", kAnotherUsers)});
    }
    const int rank = admitted.claims.rank;
    Place place;
    place.socket = std::move(admitted.socket);
    TextInput said(admitted.claims.value);
    std::getline(said, place.who);
    std::getline(said, place.number);
    std::getline(said, place.value, '\f');
    if (admitted.claims.size != size_) {
      const Failure failure{
          FailureKind::OutOfStep,
          str("rendezvous: rank ", rank, " (", place.who, ") belongs to a job of ",
              admitted.claims.size, " ranks, rank 0 (", places_[0]->who, ") to one of ", size_)};
      refuse(place.socket, failure);
      throw_failure(failure);
    }
    const bool twice = rank >= 0 && rank < size_ && places_[rank];
    if (twice && !place.number.empty() && place.number == places_[rank]->number) {
      places_[rank] = std::move(place);
      return;
    }
    if (rank < 0 || rank >= size_ || twice) {
      if (twice)
        twice_ +=
            str("; rank ", rank, " came twice (", places_[rank]->who, " and ", place.who, ")");
      refuse(place.socket,
             {FailureKind::Died,
              twice ? str("rendezvous: rank ", rank, " has joined already: ", places_[rank]->who)
                    : str("rendezvous: rank ", rank, " does not exist in a job of ", size_)});
      return;
    }
    places_[rank] = std::move(place);
    ++joined_;
  }

  void check_alive() {
    for (int r = 1; r < size_; ++r) {
      if (!places_[r]) continue;
      char byte;
      const ssize_t heard = recv(places_[r]->socket.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
      CHECK_AS(DistributedError, heard != 0, "rendezvous: rank ", r, " (", places_[r]->who,
               ") died before all had joined");
      if (heard > 0 || errno == EAGAIN || errno == EINTR) continue;
      places_[r].reset();  // its connection was lost: it comes again
      --joined_;
    }
  }

  std::string missing() const {
    std::string ranks;
    int count = 0;
    for (int r = 0; r < size_; ++r)
      if (!places_[r]) ranks += str(count++ == 0 ? " " : ", ", r);
    const bool foreign = is_numeric(options_.address.host) && here_.host != options_.address.host;
    const std::string listening =
        foreign ? str(", where rank 0 listens as ", to_string(here_), " (it has no such address)")
                : "";
    return str("rendezvous at ", to_string(options_.address), listening, ": ",
               count == 1 ? "rank" : "ranks", ranks, " of ", size_, count == 1 ? " has" : " have",
               " not joined within ", std::chrono::duration<double>(options_.timeout).count(), " s",
               twice_, strangers_);
  }

  const int size_;
  const Deadline deadline_;
  const RendezvousOptions& options_;
  std::vector<std::optional<Place>> places_;  // by rank
  Address here_;                              // the address at which rank 0 listens
  int joined_ = 1;
  std::string twice_;
  std::string strangers_;
};

std::vector<std::string> receive_values(const FileDescriptor& socket, const std::string& host,
                                        int size, Deadline deadline) {
  ReplyHeader header;
  read_all(socket, std::as_writable_bytes(std::span(&header, 1)), deadline, host.c_str());
  CHECK_AS(
      DistributedError,
      header.bytes <= kMaxReply && header.failed <= 1 + static_cast<uint32_t>(FailureKind::Failed),
      "rendezvous: ", host, " sent a damaged answer");
  std::string text(header.bytes, '\0');
  read_all(socket, std::as_writable_bytes(std::span(text)), deadline, host.c_str());
  if (header.failed != 0) throw_failure({static_cast<FailureKind>(header.failed - 1), text});
  return parse_values(text, size);
}

// A connection may be lost, and if many strangers connect, rank 0 drops the one that has waited
// longest. So a rank connects again until no socket listens any more, or the
// deadline has passed.
std::vector<std::string> join(int rank, int size, const std::string& value,
                              const RendezvousOptions& options) {
  const auto deadline = Deadline::after(options.timeout);
  const auto last = Deadline::after(options.timeout + kGrace);
  const std::string host = str("rank 0 at ", to_string(options.address));
  const Claims claims{ConnectionPurpose::Rendezvous, rank, size,
                      who() + '\n' + new_secret() + '\n' + value};
  std::exception_ptr lost;
  for (;;) {
    FileDescriptor socket;
    try {
      socket = connect_tcp(options.address, deadline, lost ? IfRefused::Fail : IfRefused::TryAgain);
    } catch (const DistributedError& error) {
      if (lost) std::rethrow_exception(lost);
      if (dynamic_cast<const TimeoutError*>(&error) == nullptr) throw;
      throw TimeoutError(str("rendezvous: rank 0 has not come: ", error.what()));
    }
    try {
      client_handshake(socket, claims, options.secret, deadline, host.c_str());
      return receive_values(socket, host, size, last);
    } catch (const ConnectionLostError&) {
      if (deadline.passed()) throw;
      lost = std::current_exception();
      std::this_thread::sleep_for(kRetry);
    }
  }
}

bool is_here(const std::string& host) {
  return networks ? networks->is_loopback(host) : host == "127.0.0.1";
}

}  // namespace

std::vector<std::string> meet(int rank, int size, const std::string& value,
                              const RendezvousOptions& options) {
  CHECK(size >= 1 && rank >= 0 && rank < size, "rendezvous: rank ", rank, " of ", size,
        " ranks does not exist");
  ASSERT(value.size() <= kMaxValue);
  if (size == 1) return {value};
  CHECK_AS(
      EnvironmentError, !options.secret.empty() || is_here(options.address.host),
      "rendezvous: ", to_string(options.address),
      " can be reached from other machines, so the job needs a secret. Set "
      "RINGGRAD_SECRET, or RINGGRAD_SECRET_FILE to a file that only you can read, on all machines; "
      "RINGGRAD_SECRET=none does without, where you trust everybody who reaches that address");
  return rank == 0 ? RendezvousServer(size, value, options).run()
                   : join(rank, size, value, options);
}

}  // namespace ringgrad
