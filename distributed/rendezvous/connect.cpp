#include "ringgrad/distributed/rendezvous/connect.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/os/shared_memory.h"
#include "ringgrad/distributed/os/socket.h"
#include "ringgrad/distributed/rendezvous/handshake.h"
#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad {
namespace {

// The interval at which a waiting rank checks that the others live.
constexpr std::chrono::milliseconds kLookAgain{50};
// The time for which a rank tries to reach another one before it goes on to the next missing one,
// in the first round and at most in later ones.
constexpr std::chrono::milliseconds kFirstTry{250};
constexpr std::chrono::milliseconds kLongestTry{2000};
// A rank that dials others is the first to say which ones it does not reach.
constexpr std::chrono::seconds kGrace{1};

constexpr char kTable = '\0';  // begins a rank's table, behind its address

// The ways to reach a rank. Its fields travel as lines, so none of them contains a line end.
struct PeerAddress {
  uint64_t machine = 0;
  uint64_t job = 0;  // rank 0's counts
  // The secret of a job that has none: its ranks have met as processes of one user.
  std::string secret;
  std::map<std::string, std::string> offers = {};  // addresses, by transport

  std::string print() const {
    std::string text = str(machine, '\n', job, '\n', secret, '\n');
    for (const auto& [name, address] : offers) text += str(name, ' ', address, '\n');
    return text;
  }
  static PeerAddress parse(const std::string& text, int rank) {
    PeerAddress result;
    TextInput in(text);
    in >> result.machine >> result.job >> result.secret;
    CHECK_AS(DistributedError, !in.fail(), "rendezvous: rank ", rank, " sent a damaged address");
    std::string name;
    while (in >> name) {
      in.ignore();
      std::getline(in, result.offers[name]);
    }
    return result;
  }
};

class Connector {
 public:
  Connector(int rank, int size, const ConnectOptions& options)
      : rank_(rank), size_(size), options_(options), links_(size) {}

  Connected run(const Exchange& exchange) {
    PeerAddress own;
    own.machine = machine_id();
    own.secret = new_secret();
    own.job = parse_number<uint64_t>(new_secret().substr(0, 15), 16).value();
    std::vector<FileDescriptor> listeners;
    for (const ChannelKind* kind : channel_kinds()) {
      if (size_ == 1 || !is_wanted(*kind)) continue;
      ChannelOffer offer = kind->offer(options_.host);
      own.offers[kind->name] = std::move(offer.address);
      listeners.push_back(std::move(offer.listener));
    }
    const std::string table = rank_table ? rank_table->own(options_) : "";
    read(exchange(own.print() + kTable + table));
    secret_ = options_.secret.empty() ? addresses_[0].secret : options_.secret;
    PeerListener listener(std::move(listeners), secret_, size_);
    deadline_ = Deadline::after(options_.timeout);

    last_ = Deadline::after(options_.timeout + kGrace);
    try {
      connect_pairs(listener);
      // Ranks themselves give up earlier, and say which rank they miss.
      for (const Link& link : links_) give_up_after(link.control, 2 * options_.timeout);
    } catch (...) {
      const Failure failure = failure_of(std::current_exception());
      for (Link& link : links_)
        ControlLink(std::move(link.control))
            .send({ControlKind::Failed, failure.kind, failure.text});
      throw;
    }
    auto transport = std::make_unique<Transport>(rank_, std::move(links_), ranks_here(), last_);
    transport->complete(last_);
    return {std::move(transport), addresses_[0].job, machines()};
  }

 private:
  void read(const std::vector<std::string>& texts) {
    std::vector<std::string> tables;
    for (int r = 0; r < size_; ++r) {
      const size_t end = std::min(texts[r].find(kTable), texts[r].size());
      addresses_.push_back(PeerAddress::parse(texts[r].substr(0, end), r));
      tables.push_back(texts[r].substr(std::min(end + 1, texts[r].size())));
    }
    if (rank_table) rank_table->agree(tables, rank_);
    for (int r = 0; r < size_; ++r) {
      kinds_.push_back(r == rank_ ? nullptr : kind_between(rank_, r));
      CHECK_AS(DistributedError, r == rank_ || kinds_[r], "transport: ", options_.transport,
               " was asked for, but ranks ", rank_, " and ", r, " do not share a machine");
    }
  }

  bool is_wanted(const ChannelKind& kind) const {
    return options_.transport == "auto" ? kind.preference > 0 : options_.transport == kind.name;
  }

  // Returns the same kind for both ranks of a pair; nullptr if there is none.
  const ChannelKind* kind_between(int a, int b) const {
    const bool one_machine = addresses_[a].machine == addresses_[b].machine;
    for (const ChannelKind* kind : channel_kinds())
      if (addresses_[a].offers.contains(kind->name) && addresses_[b].offers.contains(kind->name) &&
          (one_machine || kind->reach == Reach::Network))
        return kind;
    return nullptr;
  }

  std::vector<int> machines() const {
    std::vector<int> machines;
    for (int r = 0; r < size_; ++r) {
      int first = 0;
      const auto share_memory = [&] {
        const ChannelKind* kind = kind_between(first, r);
        return kind && kind->reach == Reach::Memory;
      };
      while (first < r && !share_memory()) ++first;
      machines.push_back(first);
    }
    return machines;
  }

  int ranks_here() const {
    return static_cast<int>(std::count_if(
        addresses_.begin(), addresses_.end(),
        [&](const PeerAddress& peer) { return peer.machine == addresses_[rank_].machine; }));
  }

  bool is_connected(int peer) const {
    return peer == rank_ || (links_[peer].control && links_[peer].data);
  }
  bool misses(int first, int end) const {
    while (first < end && is_connected(first)) ++first;
    return first < end;
  }

  // Higher ranks dial lower ones. Rank 0 only admits, so there is always one rank that does not
  // wait for another. A rank dials an unreachable one again and again, and keeps no other rank from
  // connecting meanwhile.
  void connect_pairs(PeerListener& listener) {
    for (auto patience = kFirstTry; misses(0, size_);
         patience = std::min(2 * patience, kLongestTry)) {
      if (deadline_.passed() && misses(0, rank_)) throw TimeoutError(whom_it_does_not_reach());
      CHECK_AS(TimeoutError, !last_.passed(), "transport: ", names_of_missing(),
               " did not connect to rank ", rank_, " in time", listener.strangers());
      for (int peer = 0; peer < rank_; ++peer)
        if (!is_connected(peer)) go_to(peer, deadline_.but_at_most(patience));
      while (misses(0, size_)) {
        auto admitted = listener.next(Deadline::after(kLookAgain));
        if (!admitted) break;
        take(std::move(*admitted));
      }
      check_alive();
      if (options_.check_wanted) options_.check_wanted();
    }
  }

  void go_to(int peer, Deadline patience) {
    const std::string name = str("rank ", peer);
    Link& link = links_[peer];
    const auto dial = [&](ConnectionPurpose purpose) {
      FileDescriptor socket =
          kinds_[peer]->dial(addresses_[peer].offers[kinds_[peer]->name], patience);
      client_handshake(socket, {purpose, rank_, size_, ""}, secret_, deadline_, name.c_str());
      return socket;
    };
    try {
      if (!link.control) link.control = dial(ConnectionPurpose::Control);
      link.data = kinds_[peer]->open(dial(ConnectionPurpose::Data));
    } catch (const DistributedError& error) {
      obstacles_[peer] = error.what();
      if (dynamic_cast<const TimeoutError*>(&error) ||
          dynamic_cast<const ConnectionLostError*>(&error))
        return;
      throw_failure(failure_of(std::current_exception()),
                    str("transport: rank ", rank_, " cannot connect to ", name, ": "));
    }
  }

  // A rank that comes again has lost its earlier connection.
  void take(AdmittedPeer admitted) {
    const auto& [purpose, peer, size, value] = admitted.claims;
    const bool known =
        size == size_ && peer > rank_ && peer < size_ && purpose != ConnectionPurpose::Rendezvous;
    CHECK_AS(DistributedError, known, "transport: rank ", peer, " of ", size, " connected to rank ",
             rank_, " of ", size_, ", which does not expect it");
    if (purpose == ConnectionPurpose::Control)
      links_[peer].control = std::move(admitted.socket);
    else
      links_[peer].data = kinds_[peer]->open(std::move(admitted.socket));
  }

  // A rank that has connected, and then gives up or dies because of another one, closes its
  // connections. They mostly still hold unread bytes: ranks that have connected already ask for
  // this one. A rank that needs no other one any more may leave.
  void check_alive() {
    for (int peer = 0; peer < size_; ++peer) {
      FileDescriptor& control = links_[peer].control;
      pollfd end{control.get(), POLLRDHUP, 0};
      if (!control || poll(&end, 1, 0) == 0 || ends_with_goodbye(control)) continue;
      if (!links_[peer].data &&
          (end.revents & POLLERR) != 0) {  // it was lost: the rank comes again
        control.reset();
        continue;
      }
      ControlLink link(std::move(control));
      while (const auto said = link.receive())
        if (said->kind == ControlKind::Failed) throw_failure({said->failure, said->text});
      throw DistributedError(str("transport: rank ", peer, " died: its connection to rank ", rank_,
                                 " was closed while ranks connected"));
    }
  }

  std::string whom_it_does_not_reach() const {
    std::string text;
    for (int peer = 0; peer < rank_; ++peer) {
      if (is_connected(peer)) continue;
      text += text.empty() ? "transport: " : "; ";
      text += str("rank ", peer, " and rank ", rank_, " do not reach each other");
      if (peer > 0 && is_connected(0)) text += "; both reach rank 0";
      text += str(" (", obstacles_.at(peer), ")");
    }
    return text;
  }

  std::string names_of_missing() const {
    std::string names;
    for (int peer = rank_ + 1; peer < size_; ++peer)
      if (!is_connected(peer)) names += str(names.empty() ? "rank " : ", rank ", peer);
    return names;
  }

  const int rank_;
  const int size_;
  const ConnectOptions& options_;
  std::string secret_;
  Deadline deadline_;  // for connecting; until the rendezvous it is the rendezvous's own
  Deadline last_;
  std::map<int, std::string> obstacles_;  // by rank: why it was not reached
  std::vector<Link> links_;
  std::vector<PeerAddress> addresses_;
  std::vector<const ChannelKind*> kinds_;  // by rank: how this one is connected with it
};

}  // namespace

Connected connect_ranks(int rank, int size, const ConnectOptions& options,
                        const Exchange& exchange) {
  return Connector(rank, size, options).run(exchange);
}

}  // namespace ringgrad
