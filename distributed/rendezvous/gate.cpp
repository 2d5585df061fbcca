#include "ringgrad/distributed/rendezvous/gate.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

constexpr int kMaxStrangers = 64;
constexpr std::chrono::seconds kHandshake{5};

}  // namespace

Gate::Gate(std::vector<FileDescriptor> listeners, std::string secret, int ranks)
    : listeners_(std::move(listeners)), secret_(std::move(secret)), max_pending_(kMaxStrangers + ranks) {}

void Gate::accept_from(const FileDescriptor& listener) {
  FileDescriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  CHECK_AS(DistributedError, socket || (errno != EMFILE && errno != ENFILE),
           "cannot admit a rank: ", std::strerror(errno), "; raise ulimit -n");
  if (!socket) return;  // it has gone already
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (pending_.size() >= max_pending_) {
    pending_.pop_front();
    ++refused_;
  }
  pending_.push_back({Doorkeeper(std::move(socket)), Deadline::after(kHandshake)});
}

std::optional<Guest> Gate::next(Deadline deadline) {
  for (;;) {
    for (auto it = pending_.begin(); it != pending_.end();) {
      const auto state = it->doorkeeper.advance(secret_);
      if (state == Doorkeeper::State::Admitted) {
        Guest guest{it->doorkeeper.take_socket(), it->doorkeeper.claims()};
        pending_.erase(it);
        return guest;
      }
      if (state == Doorkeeper::State::Refused || it->deadline.passed()) {
        it = pending_.erase(it);
        ++refused_;
      } else {
        ++it;
      }
    }
    if (deadline.passed()) return {};
    std::vector<pollfd> descriptors;
    for (const auto& listener : listeners_) descriptors.push_back({listener.get(), POLLIN, 0});
    for (const auto& pending : pending_) descriptors.push_back({pending.doorkeeper.socket().get(), POLLIN, 0});
    int patience = deadline.poll_timeout();
    if (!pending_.empty()) patience = std::min(patience, pending_.front().deadline.poll_timeout());
    poll(descriptors.data(), descriptors.size(), patience);
    for (size_t i = 0; i < listeners_.size(); ++i)
      if (descriptors[i].revents != 0) accept_from(listeners_[i]);
  }
}

}  // namespace ringgrad
