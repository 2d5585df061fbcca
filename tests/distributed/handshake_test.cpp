// The handshake by which two ranks believe each other. An eavesdropper, a liar or a fault of the
// wire must gain nothing.
#include "ringgrad/distributed/rendezvous/handshake.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/shared_memory/local_socket.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/run_ranks.h"
#include "ringgrad/tests/distributed/stranger.h"

namespace ringgrad::test::handshake_test {

TEST_CASE("who comes without the secret takes nothing away to guess on",
          "[handshake][quick][threads]") {
  auto [ours, theirs] = local_socket_pair();
  ServerHandshake handshake(std::move(theirs));
  const auto heard = [&] {
    char bytes[256];
    return recv(ours.get(), bytes, sizeof bytes, MSG_DONTWAIT);
  };
  const ClientHello hello{0x68534752, 2, ConnectionPurpose::Rendezvous, 0, 1, 2, 0, {}};
  pour(ours, std::string(reinterpret_cast<const char*>(&hello), sizeof hello));
  REQUIRE(handshake.advance("a secret") == ServerHandshake::State::Waiting);
  REQUIRE(heard() == sizeof(Nonce));
  pour(ours, std::string(sizeof(Mac), 'x'));
  REQUIRE(handshake.advance("a secret") == ServerHandshake::State::Refused);
  ServerAnswer answer;
  REQUIRE(recv(ours.get(), &answer, sizeof answer, MSG_DONTWAIT) == sizeof answer);
  REQUIRE((answer.admitted == 0 && answer.mac == Mac{}));
}

TEST_CASE("a handshake cannot be replayed", "[handshake][quick][threads]") {
  // The test overhears a good one by sitting between client and server.
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_tcp({"127.0.0.1", 0}));
  const Address address = local_address(listeners[0]);
  PeerListener listener(std::move(listeners), "a secret", 2);
  const FileDescriptor ear = listen_tcp({"127.0.0.1", 0});
  std::thread client([&] {
    const FileDescriptor socket = connect_tcp(local_address(ear), soon());
    client_handshake(socket, {ConnectionPurpose::Rendezvous, 1, 2, "me\n"}, "a secret", soon(),
                     "server");
  });
  const FileDescriptor from_client(accept(ear.get(), nullptr, nullptr));
  std::string hello(sizeof(ClientHello) + 3, '\0');
  std::string challenge(sizeof(Nonce), '\0');
  std::string proof(sizeof(Mac), '\0');
  std::string answer(sizeof(ServerAnswer), '\0');
  const auto bytes = [](std::string& s) { return std::as_writable_bytes(std::span(s)); };
  {
    const FileDescriptor to_server = connect_tcp(address, soon());
    read_all(from_client, bytes(hello), soon(), "client");
    pour(to_server, hello);
    REQUIRE(!listener.next(Deadline::after(std::chrono::milliseconds(20))));
    read_all(to_server, bytes(challenge), soon(), "server");
    pour(from_client, challenge);
    read_all(from_client, bytes(proof), soon(), "client");
    pour(to_server, proof);
    const auto admitted = listener.next(soon());
    REQUIRE(admitted);
    REQUIRE(admitted->claims.rank == 1);
    REQUIRE(admitted->claims.value == "me\n");
    read_all(to_server, bytes(answer), soon(), "server");
    pour(from_client, answer);
  }
  client.join();

  const FileDescriptor again = connect_tcp(address, soon());
  pour(again, hello + proof);
  REQUIRE(!listener.next(Deadline::after(std::chrono::milliseconds(50))));
  REQUIRE(listener.refused() == 1);

  // Nor can the server's own proof be reflected, or the claims be changed.
  hello[8] = 0;  // another rank, the proof of the first
  const FileDescriptor changed = connect_tcp(address, soon());
  pour(changed, hello + proof);
  REQUIRE(!listener.next(Deadline::after(std::chrono::milliseconds(50))));
  REQUIRE(listener.refused() == 2);
}

namespace {

// From 127.0.0.HOST.
FileDescriptor connected_from(int host, const Address& address) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK + host - 1);
  sockaddr_in other = own;
  other.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  other.sin_port = htons(address.port);
  REQUIRE(bind(socket.get(), reinterpret_cast<sockaddr*>(&own), sizeof own) == 0);
  REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&other), sizeof other) == 0);
  return socket;
}

ClientHello hello_of_rank_1() {
  return {0x68534752, 2, ConnectionPurpose::Rendezvous, 0, 1, 2, 0, {}};
}

}  // namespace

TEST_CASE("strangers push out strangers, and no rank that is slow", "[handshake][quick][threads]") {
  // The rank's network is slow, or it has no core. While part of its handshake is on its way,
  // strangers connect one after the other: silent ones from its own address, or clients from
  // another.
  const auto others = GENERATE(1, 2);
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_tcp({"127.0.0.1", 0}));
  const Address address = local_address(listeners[0]);
  PeerListener listener(std::move(listeners), "a secret", 2);
  const auto attend = [&] {
    REQUIRE(!listener.next(Deadline::after(std::chrono::milliseconds(1))));
  };
  const FileDescriptor before = connected_from(others, address);  // a stranger who waits already
  attend();
  auto [ear, mouth] = local_socket_pair();
  std::thread client([mouth = std::move(mouth)] {
    client_handshake(mouth, {ConnectionPurpose::Rendezvous, 1, 2, ""}, "a secret", soon(), "it");
  });
  const auto pass = [](const FileDescriptor& from, const FileDescriptor& to, size_t size) {
    std::string bytes(size, '\0');
    read_all(from, std::as_writable_bytes(std::span(bytes)), soon(), "the other side");
    pour(to, bytes);
  };
  const FileDescriptor rank = connected_from(1, address);
  pass(ear, rank, sizeof(ClientHello));
  attend();
  std::vector<FileDescriptor> strangers;
  const ClientHello hello = hello_of_rank_1();
  for (int i = 0; i < 200; ++i) {
    strangers.push_back(connected_from(others, address));
    if (others != 1)
      pour(strangers.back(), std::string(reinterpret_cast<const char*>(&hello), sizeof hello));
    attend();
  }
  pass(rank, ear, sizeof(Nonce));
  pass(ear, rank, sizeof(Mac));
  const auto admitted = listener.next(soon());
  pass(rank, ear, sizeof(ServerAnswer));
  client.join();
  REQUIRE(admitted);
  REQUIRE(admitted->claims.rank == 1);
  REQUIRE(listener.refused() >= 100);
  REQUIRE(listener.strangers() == str("; ", listener.refused(), " connections were of strangers"));
}

TEST_CASE("another user's process is refused at a local socket", "[handshake][quick]") {
  if (geteuid() != 0) return;  // only root can become another user
  const std::string name = "ringgrad-test-" + new_secret();
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_local(name));
  PeerListener listener(std::move(listeners), "a secret", 2);
  for (const bool another : {true, false}) {
    const pid_t child = fork();
    if (child == 0) {
      if (another && setresuid(65534, 65534, 65534) != 0) _exit(2);
      const FileDescriptor socket = connect_local(name, soon());
      pollfd ended{socket.get(), POLLIN, 0};
      _exit(poll(&ended, 1, 1000) == 0 ? 1 : 0);
    }
    REQUIRE(!listener.next(Deadline::after(std::chrono::milliseconds(500))));
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WEXITSTATUS(status) == (another ? 0 : 1));
  }
}

TEST_CASE("every flipped byte of a handshake is refused", "[handshake][quick][threads]") {
  std::vector<FileDescriptor> listeners;
  listeners.push_back(listen_local("ringgrad-test-" + new_secret()));
  PeerListener listener(std::move(listeners), "a secret", 2);
  for (size_t at = 0; at < sizeof(ClientHello) + 3 + sizeof(Mac); ++at) {
    auto [ours, theirs] = local_socket_pair();
    auto [ear, mouth] = local_socket_pair();
    ServerHandshake handshake(std::move(theirs));
    std::thread client([&, mouth = std::move(mouth)] {
      error_of([&] {
        client_handshake(mouth, {ConnectionPurpose::Control, 1, 2, "abc"}, "a secret", soon(),
                         "server");
      });
    });
    std::string hello(sizeof(ClientHello) + 3, '\0');
    std::string challenge(sizeof(Nonce), '\0');
    std::string proof(sizeof(Mac), '\0');
    const auto bytes = [](std::string& s) { return std::as_writable_bytes(std::span(s)); };
    read_all(ear, bytes(hello), soon(), "client");
    std::string flipped = hello;
    if (at < hello.size()) flipped[at] = static_cast<char>(flipped[at] ^ 0x40);
    pour(ours, flipped);
    auto state = handshake.advance("a secret");
    if (state == ServerHandshake::State::Waiting && at >= hello.size()) {
      read_all(ours, bytes(challenge), soon(), "server");
      pour(ear, challenge);
      read_all(ear, bytes(proof), soon(), "client");
      proof[at - hello.size()] = static_cast<char>(proof[at - hello.size()] ^ 1);
      pour(ours, proof);
      state = handshake.advance("a secret");
    } else if (state == ServerHandshake::State::Waiting) {
      pour(ours, std::string(sizeof(Mac) + 64, 'x'));
      state = handshake.advance("a secret");
    }
    ear.reset();
    ours.reset();
    client.join();
    if (state == ServerHandshake::State::Waiting)
      state = handshake.advance("a secret");  // it asked for a longer value: gone
    CAPTURE(at);
    REQUIRE(state == ServerHandshake::State::Refused);
  }
}

}  // namespace ringgrad::test::handshake_test
