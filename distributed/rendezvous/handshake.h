// The handshake: two ranks prove that they belong to the job before they believe anything else.
//
// Both know the job's secret. Each sends a fresh random number, and an HMAC-SHA-256 over both
// numbers and all of the client's claims. So a stranger cannot join without the secret, cannot
// replay what it has overheard, and cannot reflect it, because the two sides' messages begin
// differently. The client proves first: a stranger only gets a random number, on which it cannot
// test guesses offline. (A stranger that listens in rank 0's place does get a proof, so a secret
// must be beyond guessing: rank_environment.h.)
//
// After the handshake nothing is encrypted or authenticated, so use a private network or a tunnel
// between machines.
//
//   client                                   server
//   ClientHello {claims, nonce}        ─►
//                                      ◄─    nonce
//   HMAC("client", hello, nonces)      ─►
//                                      ◄─    ServerAnswer {admitted, HMAC("server", hello, nonces)}
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

enum class ConnectionPurpose : uint8_t { Rendezvous, Control, Data };

// The client's claims about itself.
struct Claims {
  ConnectionPurpose purpose = ConnectionPurpose::Rendezvous;
  int32_t rank = 0;
  int32_t size = 0;
  std::string value;  // at most kMaxClaimedValue bytes
};
inline constexpr size_t kMaxClaimedValue = 2048;

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

struct ClientHello {
  uint32_t magic;
  uint16_t version;
  ConnectionPurpose purpose;
  uint8_t reserved;
  int32_t rank;
  int32_t size;
  uint32_t value_bytes;  // the value follows
  Nonce nonce;
};
struct ServerAnswer {
  uint32_t admitted;  // 0: the client's proof is wrong, and the server gives none
  Mac mac;
};

// Returns 256 random bits, as 64 hexadecimal digits.
std::string new_secret();

// Without a secret the user of the other process counts, which the system knows if it is on this
// machine. REQUIRES: the other process cannot have ended in good order yet.
bool may_talk(const FileDescriptor& socket, std::string_view secret);
inline constexpr const char* kAnotherUsers =
    " does not belong to this job's user, and the job has no secret; "
    "all ranks are to be one user's, or know the same RINGGRAD_SECRET";

// The client's side. Throws TimeoutError, DistributedError, or OutOfStepError if the secrets
// differ, or without a secret the users. Errors call the server `peer`.
void client_handshake(const FileDescriptor& socket, const Claims& claims, std::string_view secret,
                      Deadline deadline, const char* peer);

// The server's side of one connection, which takes bytes as they come and never waits.
class ServerHandshake {
 public:
  explicit ServerHandshake(FileDescriptor socket) : socket_(std::move(socket)) {}

  enum class State { Waiting, Refused, Admitted };
  // Reads the bytes that are there. Refused means that the client broke the protocol, does not know
  // the secret (claims() has its claims), or has gone.
  State advance(std::string_view secret);

  const FileDescriptor& socket() const { return socket_; }
  FileDescriptor take_socket() { return std::move(socket_); }
  bool wrong_secret() const { return wrong_secret_; }
  bool is_client() const { return challenged_; }    // it has said hello as a client does
  const Claims& claims() const { return claims_; }  // REQUIRES: Admitted, or wrong_secret()

 private:
  bool fill(size_t bytes);

  FileDescriptor socket_;
  std::string received_;
  Claims claims_;
  Nonce nonce_{};
  bool challenged_ = false;
  bool gone_ = false;
  bool wrong_secret_ = false;
};

struct AdmittedPeer {
  FileDescriptor socket;
  Claims claims;
};

// Admits ranks of the job from listening sockets. Other programs cannot block it: apart from the
// ranks' own, at most 64 connections wait for their handshake at a time, each for 5 seconds and
// with about two kilobytes. A further one replaces the oldest from the same address, or else the
// oldest, preferably one that has not said hello. At a local socket other users' processes are
// refused. All connections are served at once, so silence and garbage cost the ranks nothing.
class PeerListener {
 public:
  PeerListener(std::vector<FileDescriptor> listeners, std::string secret, int ranks);

  // The next rank that has proved to belong to the job; nothing at the deadline.
  std::optional<AdmittedPeer> next(Deadline deadline);

  int refused() const { return refused_; }  // connections of strangers so far
  // Describes the connections that were refused: "; a process at 10.0.0.7 came as rank 1 with
  // another secret; 7 connections were of strangers". It names the first one that claimed a rank,
  // which the launcher also learns at once, and the number of all. Returns "" if there was none.
  std::string strangers() const;

 private:
  struct Pending {
    ServerHandshake handshake;
    Deadline deadline;
    std::string from;  // the address
  };
  void accept_from(const FileDescriptor& listener);
  void note_refusal(const ServerHandshake& handshake);

  std::vector<FileDescriptor> listeners_;
  std::string secret_;
  const size_t max_pending_;
  std::deque<Pending> pending_;  // in the order of arrival, and so of deadlines
  int refused_ = 0;
  std::string wrong_secret_;
};

}  // namespace ringgrad
