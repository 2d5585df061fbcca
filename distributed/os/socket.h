// Sockets: the few calls that the rest of the folder needs, with deadlines, and errors that name
// both ends.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/error.h"
#include "ringgrad/distributed/os/file_descriptor.h"

namespace ringgrad {

struct Address {
  std::string host;  // a name, or a numeric IPv4 or IPv6 address
  uint16_t port = 0;
};
std::string to_string(const Address& address);  // "127.0.0.1:29500", "[::1]:29500"

struct AddressInUseError : DistributedError {
  using DistributedError::DistributedError;
};

// An address that is not this machine's is a mistake, or the one under which others reach it,
// through a router that translates addresses or a service of Kubernetes. For the second case this
// machine listens on all of its addresses.
enum class IfForeign { Fail, ListenOnAll };

// Listens on this address only; port 0: any free one. Throws AddressInUseError,
// EnvironmentError for an address that is not this machine's, or DistributedError.
FileDescriptor listen_tcp(const Address& address, IfForeign foreign = IfForeign::Fail);
// Listens on every address of the host that this machine has: a name may stand for 127.0.1.1 here,
// and for another address elsewhere. Throws as listen_tcp() if it can listen on none, and
// AddressInUseError.
std::vector<FileDescriptor> listen_on_all_of(const Address& address, IfForeign foreign);
// Only takes the port; several such sockets and one that listens may have the same.
FileDescriptor bind_tcp(const Address& address, IfForeign foreign = IfForeign::Fail);
// The address to which a socket is bound, numeric.
Address local_address(const FileDescriptor& socket);
// The numeric address at the other end of a connection; "this machine" of a Unix socket.
std::string host_at_other_end(const FileDescriptor& socket);
bool is_numeric(const std::string& host);

// Connects to the first of the host's addresses that answers. With networks.cpp it tries them side
// by side, and again if none answers or the name is not known. It also tries again if no process
// listens yet, unless `Fail` says that one has listened before. Throws TimeoutError at the
// deadline, NetworkError if the name is still unknown then, DistributedError for other failures.
// All of them name the address and the cause.
enum class IfRefused { TryAgain, Fail };
FileDescriptor connect_tcp(const Address& address, Deadline deadline,
                           IfRefused refused = IfRefused::TryAgain);

// Makes the close of a connection a reset: the other end then knows that it was not used any more,
// and that this process need not have died.
void abandon(const FileDescriptor& socket);
// Makes a TCP connection count as broken after so much silence from the other end.
void give_up_after(const FileDescriptor& socket, std::chrono::milliseconds silence);

// Functions that only jobs on several machines need: names, hosts with several addresses, networks
// that lose bytes. networks/networks.cpp sets them before main. They are nullptr in a program
// without that file, whose ranks meet at an address of their one machine.
struct Networks {
  FileDescriptor (*connect)(const Address& address, Deadline deadline, IfRefused refused);
  // Returns no listener if the host has one address, or none of this machine's.
  std::vector<FileDescriptor> (*listen)(const Address& address);
  // Returns this machine's own address on the way to `host`, in numbers. It is no loopback address
  // if there is another one. Tries again until the deadline if the name is not known.
  std::string (*address_towards)(const std::string& host, Deadline deadline);
  // Throws EnvironmentError if `host`, where ranks of several machines are to meet, is a name for
  // this machine alone. Accepts "localhost" and numeric addresses.
  void (*check_reachable)(const std::string& host);
  // Returns true if no other machine reaches the host by any of its addresses.
  bool (*is_loopback)(const std::string& host);
  // Parses tcp://host:port. Throws Error for other texts.
  Address (*parse_url)(const std::string& url);
};
inline constinit const Networks* networks = nullptr;

// Returns the socket from which every connection is made. It probes the other end after a long
// silence, and sends at once without waiting for more bytes (no Nagle), because messages are
// written whole. Connections that a listener accepts inherit this. Returns an empty descriptor if
// the machine lacks the address family. Throws if the process may open no more files.
FileDescriptor new_tcp_socket(int family, int flags = 0);
bool connected_with_itself(const FileDescriptor& socket);

struct ConnectionLostError : DistributedError {  // the other end closed it, or the network did
  using DistributedError::DistributedError;
};

// Write or read exactly so many bytes. Throw TimeoutError or ConnectionLostError, which call the
// other end `peer`.
void write_all(const FileDescriptor& socket, std::span<const std::byte> bytes, Deadline deadline,
               const char* peer);
void read_all(const FileDescriptor& socket, std::span<std::byte> bytes, Deadline deadline,
              const char* peer);

// Questions about other processes' sockets. processes/socket_owners.cpp sets them before main; they
// are nullptr in a program without that file.

// Returns the user whose process holds the other end of a TCP connection within this machine, or
// has connected a Unix socket. Returns nothing if no process does any more, or the system does not
// tell.
using AskForUser = std::optional<uid_t> (*)(const FileDescriptor& socket);
inline constinit AskForUser user_at_other_end = nullptr;
// Returns the owner of a port of this machine, for the error that the port is taken: "python3
// (process 4711)". Returns "another program" if the system does not tell, as for other users'
// processes.
using AskForOwner = std::string (*)(int port);
inline constinit AskForOwner port_owner = nullptr;

}  // namespace ringgrad
