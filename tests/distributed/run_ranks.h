// Ranks as threads of the test: runs a body once per rank, each with its own transport.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {

// Two connected sockets of this process.
inline std::pair<FileDescriptor, FileDescriptor> local_socket_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw Error("socketpair");
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// Returns the names of all registered transports, for from_range(): the same tests hold for each.
inline std::vector<const char*> channel_names() {
  std::vector<const char*> names;
  for (const ChannelKind* kind : channel_kinds()) names.push_back(kind->name);
  return names;
}

// Connects two ranks of this process by the transport of that name, over Unix control connections.
inline void connect_pair(Link& a, Link& b, std::string_view channel) {
  const ChannelKind* kind = find_channel_kind(std::string(channel));
  if (kind == nullptr) throw Error("no transport " + std::string(channel));
  std::tie(a.control, b.control) = local_socket_pair();
  const ChannelOffer offer = kind->offer("127.0.0.1");
  a.data = kind->open(kind->dial(offer.address, Deadline::after(std::chrono::seconds(30))));
  FileDescriptor server(accept4(offer.listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!server) throw Error("accept");
  const int on = 1;
  setsockopt(server.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  b.data = kind->open(std::move(server));
}

// Returns connected transports for ranks 0 … size-1, each to be used by its own thread. `channel`
// is a transport's name, such as "shm" or "tcp". For "shm" they use the queues and control pages
// that processes use, at the same addresses in all threads. For "tcp" they use loopback
// connections.
inline std::vector<std::unique_ptr<Transport>> in_process_transports(
    int size, std::string_view channel = "shm") {
  std::vector<std::vector<Link>> links(size);
  for (auto& row : links) row.resize(size);
  for (int i = 0; i < size; ++i)
    for (int j = 0; j < i; ++j) connect_pair(links[i][j], links[j][i], channel);
  std::vector<std::unique_ptr<Transport>> transports;
  const auto deadline = Deadline::after(std::chrono::seconds(30));
  for (int r = 0; r < size; ++r)
    transports.push_back(std::make_unique<Transport>(r, std::move(links[r]), size, deadline));
  for (auto& transport : transports) transport->complete(deadline);
  return transports;
}

// Returns the error of each rank's body ("" if none). A rank's transport is destroyed as soon as
// its body has returned or thrown.
template <class Rank, class Body>
std::vector<std::string> errors_of_ranks(std::vector<std::unique_ptr<Rank>> ranks, Body body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        const auto own = std::move(ranks[r]);
        body(*own);
      } catch (const std::exception& e) {
        errors[r] = *e.what() ? e.what() : "an exception without a text";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

// Throws what the first failing rank threw.
template <class Body>
void run_ranks(int size, std::string_view channel, Body body) {
  const auto errors = errors_of_ranks(in_process_transports(size, channel), body);
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) throw Error("on rank " + std::to_string(r) + ": " + errors[r]);
}

}  // namespace ringgrad
