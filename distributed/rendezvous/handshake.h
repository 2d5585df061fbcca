// How two ranks make sure that the other one belongs to the job, before anything else it says is believed.
//
// Both know the job's secret. Each sends a fresh random number and an HMAC-SHA-256 over both numbers and everything the
// client claims about itself; so nobody can join without the secret, nor replay what he has overheard, nor reflect it,
// because the two sides' messages begin differently. After that, the connection is believed: nothing more is encrypted
// or authenticated, so use a private network or a tunnel between machines.
//
//   client                                     server
//   ClientHello {claims, nonce}        ─►
//                                      ◄─      ServerProof {nonce, HMAC("server", hello, nonces)}
//   ClientProof {HMAC("client", …)}    ─►
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

// What a client says about itself.
struct Claims {
  ConnectionPurpose purpose = ConnectionPurpose::Rendezvous;
  int32_t rank = 0, size = 0;
  std::string value;  // at most kMaxClaimedValue bytes
};
inline constexpr size_t kMaxClaimedValue = 1024;

using Nonce = std::array<std::byte, 32>;
using Mac = std::array<std::byte, 32>;

struct ClientHello {
  uint32_t magic;
  uint16_t version;
  ConnectionPurpose purpose;
  uint8_t reserved;
  int32_t rank, size;
  uint32_t value_bytes;  // the value follows
  Nonce nonce;
};
struct ServerProof {
  Nonce nonce;
  Mac mac;
};

// 256 random bits, as 64 hexadecimal digits.
std::string new_secret();

// The client's side. Throws TimeoutError or DistributedError, calling the server `peer`.
void client_handshake(const FileDescriptor& socket, const Claims& claims, std::string_view secret, Deadline deadline,
                      const char* peer);

// The server's side of one connection, which takes bytes as they come and never waits.
class ServerHandshake {
 public:
  explicit ServerHandshake(FileDescriptor socket) : socket_(std::move(socket)) {}

  enum class State { Waiting, Refused, Admitted };
  // Reads what is there. Refused: the client broke the protocol, does not know the secret or has gone.
  State advance(std::string_view secret);

  const FileDescriptor& socket() const { return socket_; }
  FileDescriptor take_socket() { return std::move(socket_); }
  const Claims& claims() const { return claims_; }  // REQUIRES: Admitted

 private:
  bool fill(size_t bytes);

  FileDescriptor socket_;
  std::string received_;
  Claims claims_;
  ServerProof proof_{};
  bool challenged_ = false, gone_ = false;
};

struct AdmittedPeer {
  FileDescriptor socket;
  Claims claims;
};

// Admits ranks of the job from listening sockets, and lets no stranger hold them up: apart from the ranks' own, at most
// 64 connections wait for their handshake at a time (the oldest one goes first), each for 5 seconds and about a
// kilobyte. They are served all at once, so silence and garbage cost the ranks nothing.
class PeerListener {
 public:
  PeerListener(std::vector<FileDescriptor> listeners, std::string secret, int ranks);

  // The next rank that has proved to belong to the job; nothing at the deadline.
  std::optional<AdmittedPeer> next(Deadline deadline);

  int refused() const { return refused_; }  // connections of strangers so far

 private:
  struct Pending {
    ServerHandshake handshake;
    Deadline deadline;
  };
  void accept_from(const FileDescriptor& listener);

  std::vector<FileDescriptor> listeners_;
  std::string secret_;
  const size_t max_pending_;
  std::deque<Pending> pending_;  // in the order of arrival, and so of deadlines
  int refused_ = 0;
};

}  // namespace ringgrad
