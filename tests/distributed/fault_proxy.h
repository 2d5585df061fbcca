// A network that fails on purpose: connections between ranks go through it, and it delays, stops,
// cuts or damages them. In user space, so that tests need neither rights nor a special kernel, and
// know the byte at which it happens.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/rendezvous/handshake.h"

namespace ringgrad {

struct Fault {
  enum Kind { None, Reset, End, BlackHole, Flip } kind = None;
  size_t after = 0;        // bytes of data, both directions and all links counted together
  double bytes_per_s = 0;  // 0: as fast as it goes
  std::chrono::milliseconds delay{0};
};

class FaultProxy {
 public:
  explicit FaultProxy(const Fault& fault) : fault_(fault), thread_([this] { run(); }) {}
  ~FaultProxy() {
    stop_ = true;
    thread_.join();
  }

  // Returns the address under which clients reach `server` through this proxy.
  Address towards(const Address& server) {
    FileDescriptor listener = listen_tcp({"127.0.0.1", 0});
    const Address address = local_address(listener);
    std::lock_guard lock(mutex_);
    listeners_.push_back({std::move(listener), server});
    return address;
  }

  bool happened() const { return happened_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Listener {
    FileDescriptor socket;
    Address server;
  };
  struct Chunk {
    Clock::time_point due;
    std::string bytes;
  };
  struct Flow {  // one direction of a connection
    std::deque<Chunk> chunks;
    size_t queued = 0;
    Clock::time_point last_due{};
    bool ended = false;
  };
  struct Pair {
    FileDescriptor ends[2];  // the client's, the server's
    Flow flows[2];           // flows[i] leaves ends[i]
    std::string begin;       // the first bytes that the client sends
    bool dead = false;

    bool carries_data() const {
      return begin.size() == sizeof(ClientHello) &&
             reinterpret_cast<const ClientHello*>(begin.data())->purpose == ConnectionPurpose::Data;
    }
  };
  static constexpr size_t kRoom = 64 << 10;

  void run() {
    while (!stop_) {
      std::vector<pollfd> ready;
      {
        std::lock_guard lock(mutex_);
        for (const Listener& listener : listeners_)
          ready.push_back({listener.socket.get(), POLLIN, 0});
        for (const Pair& pair : pairs_)
          for (int i = 0; i < 2 && !pair.dead; ++i)
            if (!pair.flows[i].ended && pair.flows[i].queued < kRoom)
              ready.push_back({pair.ends[i].get(), POLLIN, 0});
      }
      poll(ready.data(), ready.size(), 1);
      std::lock_guard lock(mutex_);
      for (const Listener& listener : listeners_) accept_at(listener);
      for (Pair& pair : pairs_)
        for (int i = 0; i < 2 && !pair.dead; ++i) {
          take(pair, i);
          if (!pair.dead) give(pair, i);
        }
    }
  }

  bool black_hole() const { return happened_ && fault_.kind == Fault::BlackHole; }

  void accept_at(const Listener& listener) {
    pollfd waiting{listener.socket.get(), POLLIN, 0};
    while (poll(&waiting, 1, 0) > 0) {
      FileDescriptor client(
          accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!client) return;
      Pair pair;
      pair.ends[0] = std::move(client);
      try {
        pair.ends[1] = connect_tcp(listener.server, Deadline::after(std::chrono::milliseconds(20)));
        pairs_.push_back(std::move(pair));
      } catch (const DistributedError&) {  // the server has gone, and so goes the client
      }
    }
  }

  void take(Pair& pair, int i) {
    Flow& flow = pair.flows[i];
    char bytes[16 << 10];
    while (!flow.ended && flow.queued < kRoom && !pair.dead) {
      const ssize_t n = recv(pair.ends[i].get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        flow.ended = true;
        return;
      }
      auto size = static_cast<size_t>(n);
      if (i == 0) pair.begin.append(bytes, std::min(size, sizeof(ClientHello) - pair.begin.size()));
      if (pair.carries_data()) size = count(pair, bytes, size);
      if (black_hole()) continue;  // bytes and ends go in, and nothing comes out
      auto due = std::max(Clock::now() + fault_.delay, flow.last_due);
      if (fault_.bytes_per_s > 0)
        due += std::chrono::nanoseconds(
            static_cast<int64_t>(1e9 * static_cast<double>(size) / fault_.bytes_per_s));
      flow.last_due = due;
      flow.chunks.push_back({due, std::string(bytes, size)});
      flow.queued += size;
    }
  }

  // Lets the fault happen when its byte has come; returns how many of these bytes go on.
  size_t count(Pair& pair, char* bytes, size_t size) {
    const size_t before = counted_;
    counted_ += size;
    if (fault_.kind == Fault::None || happened_ || counted_ <= fault_.after) return size;
    happened_ = true;
    const size_t good = fault_.after - before;
    if (fault_.kind == Fault::Flip) {
      bytes[good] = static_cast<char>(bytes[good] ^ 0x10);
      return size;
    }
    if (fault_.kind == Fault::Reset) {
      const linger at_once{1, 0};
      for (const FileDescriptor& end : pair.ends)
        setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    if (fault_.kind != Fault::BlackHole) kill(pair);
    return good;
  }

  void give(Pair& pair, int i) {
    if (black_hole()) return;
    Flow& flow = pair.flows[i];
    const FileDescriptor& other = pair.ends[1 - i];
    while (!flow.chunks.empty() && flow.chunks.front().due <= Clock::now()) {
      std::string& bytes = flow.chunks.front().bytes;
      const ssize_t n = send(other.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0) return kill(pair);
      flow.queued -= static_cast<size_t>(n);
      bytes.erase(0, static_cast<size_t>(n));
      if (bytes.empty()) flow.chunks.pop_front();
    }
    if (flow.ended && flow.chunks.empty()) shutdown(other.get(), SHUT_WR);
    if (pair.flows[0].ended && pair.flows[1].ended && flow.chunks.empty() &&
        pair.flows[1 - i].chunks.empty())
      kill(pair);
  }

  static void kill(Pair& pair) {
    for (FileDescriptor& end : pair.ends) end.reset();
    pair.dead = true;
  }

  const Fault fault_;
  std::mutex mutex_;
  std::vector<Listener> listeners_;
  std::deque<Pair> pairs_;
  size_t counted_ = 0;
  std::atomic<bool> happened_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace ringgrad
