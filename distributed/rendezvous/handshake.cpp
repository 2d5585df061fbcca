#include "ringgrad/distributed/rendezvous/handshake.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/sha256.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/os/socket.h"

namespace ringgrad {

namespace {

constexpr uint32_t kHelloMagic = 0x68534752;
constexpr uint16_t kVersion = 2;
constexpr int kMaxStrangers = 64;
constexpr std::chrono::seconds kHandshake{5};

Nonce random_nonce() {
  Nonce nonce;
  ASSERT(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()),
                    static_cast<int>(nonce.size())) == 1);
  return nonce;
}

// `said` is the client's hello with its value, which has the client's nonce.
Mac sign(std::string_view secret, std::string_view side, std::string_view said,
         const Nonce& server_nonce) {
  std::string message(side);
  message.append(said);
  message.append(reinterpret_cast<const char*>(server_nonce.data()), server_nonce.size());
  Mac mac;
  unsigned length = 0;
  const auto* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                          reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                          reinterpret_cast<unsigned char*>(mac.data()), &length);
  ASSERT(done != nullptr && length == mac.size());
  return mac;
}

// In constant time: how many bytes agree must not be seen in how long it takes.
bool equal(const Mac& a, const Mac& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

std::string new_secret() { return hex_of(random_nonce()); }

bool may_talk(const FileDescriptor& socket, std::string_view secret) {
  return !secret.empty() || (user_at_other_end && user_at_other_end(socket) == geteuid());
}

void client_handshake(const FileDescriptor& socket, const Claims& claims, std::string_view secret,
                      Deadline deadline, const char* peer) {
  ASSERT(claims.value.size() <= kMaxClaimedValue);
  const ClientHello hello{kHelloMagic,
                          kVersion,
                          claims.purpose,
                          0,
                          claims.rank,
                          claims.size,
                          static_cast<uint32_t>(claims.value.size()),
                          random_nonce()};
  const std::string said =
      std::string(reinterpret_cast<const char*>(&hello), sizeof hello) + claims.value;
  write_all(socket, std::as_bytes(std::span(said)), deadline, peer);
  Nonce nonce;
  read_all(socket, nonce, deadline, peer);
  CHECK_AS(OutOfStepError, may_talk(socket, secret), peer, kAnotherUsers);
  write_all(socket, sign(secret, "client", said, nonce), deadline, peer);
  ServerAnswer answer;
  read_all(socket, std::as_writable_bytes(std::span(&answer, 1)), deadline, peer);
  CHECK_AS(
      OutOfStepError,
      answer.admitted == 1 && equal(answer.mac, sign(secret, "server", said, nonce)), peer,
      " does not know this job's secret: it belongs to another job, or RINGGRAD_SECRET differs");
}

// Never reads beyond the handshake: later bytes belong to the next owner of the socket.
bool ServerHandshake::fill(size_t bytes) {
  while (received_.size() < bytes && !gone_) {
    char chunk[256];
    const ssize_t n =
        recv(socket_.get(), chunk, std::min(sizeof chunk, bytes - received_.size()), MSG_DONTWAIT);
    if (n > 0)
      received_.append(chunk, static_cast<size_t>(n));
    else if (n < 0 && (errno == EAGAIN || errno == EINTR))
      return false;
    else
      gone_ = true;
  }
  return received_.size() >= bytes;
}

ServerHandshake::State ServerHandshake::advance(std::string_view secret) {
  ClientHello hello;
  const auto unless_gone = [&] { return gone_ ? State::Refused : State::Waiting; };
  if (!fill(sizeof hello)) return unless_gone();
  std::memcpy(&hello, received_.data(), sizeof hello);
  if (hello.magic != kHelloMagic || hello.version != kVersion ||
      hello.purpose > ConnectionPurpose::Data || hello.reserved != 0 ||
      hello.value_bytes > kMaxClaimedValue)
    return State::Refused;
  const size_t said_bytes = sizeof hello + hello.value_bytes;
  if (!fill(said_bytes)) return unless_gone();
  // A fresh connection has room for so few bytes; one that has not is no client of ours.
  const auto say = [&](const auto& message) {
    return send(socket_.get(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           sizeof message;
  };
  if (!challenged_) {
    nonce_ = random_nonce();
    if (!say(nonce_)) return State::Refused;
    challenged_ = true;
  }
  Mac mac;
  if (!fill(said_bytes + mac.size())) return unless_gone();
  std::memcpy(mac.data(), received_.data() + said_bytes, mac.size());
  const std::string_view said = std::string_view(received_).substr(0, said_bytes);
  wrong_secret_ = !equal(mac, sign(secret, "client", said, nonce_));
  claims_ = {hello.purpose, hello.rank, hello.size,
             received_.substr(sizeof hello, hello.value_bytes)};
  ServerAnswer answer{};
  if (!wrong_secret_) answer = {1, sign(secret, "server", said, nonce_)};
  return say(answer) && !wrong_secret_ ? State::Admitted : State::Refused;
}

PeerListener::PeerListener(std::vector<FileDescriptor> listeners, std::string secret, int ranks)
    : listeners_(std::move(listeners)),
      secret_(std::move(secret)),
      max_pending_(kMaxStrangers + ranks) {}

void PeerListener::accept_from(const FileDescriptor& listener) {
  FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  socket.keep_from_forks();
  if (errno == EMFILE || errno == ENFILE)
    check_opened<DistributedError>(socket, "cannot admit a rank");
  if (!socket) return;  // it has gone already
  const std::string from = host_at_other_end(socket);
  if (pending_.size() >= max_pending_) {
    ++refused_;
    pending_.erase(std::ranges::min_element(pending_, {}, [&](const Pending& p) {
      return std::pair(p.from != from, p.handshake.is_client());
    }));
  }
  if (from != "this machine" || may_talk(socket, ""))
    pending_.push_back({ServerHandshake(std::move(socket)), Deadline::after(kHandshake), from});
}

std::string PeerListener::strangers() const {
  return wrong_secret_ + (refused_ ? str("; ", refused_, " connections were of strangers") : "");
}

void PeerListener::note_refusal(const ServerHandshake& handshake) {
  // A client with the right protocol that has left early is a rank that will try again.
  if (handshake.is_client() && !handshake.wrong_secret()) return;
  ++refused_;
  if (!handshake.wrong_secret() || !wrong_secret_.empty()) return;
  wrong_secret_ = str("; a process at ", host_at_other_end(handshake.socket()), " came as rank ",
                      handshake.claims().rank, " with another secret");
  report_waiting(wrong_secret_.substr(2) +
                 ": RINGGRAD_SECRET differs, or it belongs to another job");
}

std::optional<AdmittedPeer> PeerListener::next(Deadline deadline) {
  for (;;) {
    for (auto it = pending_.begin(); it != pending_.end();) {
      const auto state = it->handshake.advance(secret_);
      if (state == ServerHandshake::State::Admitted) {
        AdmittedPeer admitted{it->handshake.take_socket(), it->handshake.claims()};
        pending_.erase(it);
        return admitted;
      }
      if (state == ServerHandshake::State::Refused || it->deadline.passed()) {
        note_refusal(it->handshake);
        it = pending_.erase(it);
      } else {
        ++it;
      }
    }
    if (deadline.passed()) return {};
    std::vector<pollfd> descriptors;
    for (const auto& listener : listeners_) descriptors.push_back({listener.get(), POLLIN, 0});
    for (const auto& pending : pending_)
      descriptors.push_back({pending.handshake.socket().get(), POLLIN, 0});
    int patience = deadline.poll_timeout();
    if (!pending_.empty()) patience = std::min(patience, pending_.front().deadline.poll_timeout());
    poll(descriptors.data(), descriptors.size(), patience);
    for (size_t i = 0; i < listeners_.size(); ++i)
      if (descriptors[i].revents != 0) accept_from(listeners_[i]);
  }
}

}  // namespace ringgrad
